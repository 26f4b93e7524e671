package history

import "testing"

func TestPaymentStored(t *testing.T) {
	tests := []struct {
		name         string
		payment      Payment
		kept, stored bool
	}{
		{"carried out", Payment{Status: 201}, true, true},
		{"declined, and perhaps by a handler that had lost its lock", Payment{Status: 402}, true, false},
		{"declined, from the table", Payment{Status: 402, Replayed: true}, true, true},
		{"in flight", Payment{Status: 409}, false, false},
		{"away", Payment{Status: 503}, false, false},
		{"no response", Payment{}, false, false},
	}
	for _, tt := range tests {
		if kept, stored := tt.payment.Kept(), tt.payment.Stored(); kept != tt.kept || stored != tt.stored {
			t.Errorf("%s: kept %v, stored %v; want %v, %v", tt.name, kept, stored, tt.kept, tt.stored)
		}
	}
}
