package check

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// payment is an attempt at the request of key 1.
func payment(status int, receipt int64, body string) history.Event {
	return serviced(history.Serviced{Payment: &history.Payment{Key: 1, Begin: sec(1), End: sec(2), Status: status, Receipt: receipt, Body: body}})
}

func withOther(e history.Event) history.Event {
	p := *e.Payment
	p.Other = true
	return serviced(history.Serviced{Payment: &p})
}

func replayed(e history.Event) history.Event {
	p := *e.Payment
	p.Replayed = true
	return serviced(history.Serviced{Payment: &p})
}

func last(e history.Event) history.Event {
	p := *e.Payment
	p.Last = true
	return serviced(history.Serviced{Payment: &p})
}

func TestPayments(t *testing.T) {
	one := Left{Paid: []Paid{{1, 7}}}
	created, declined := payment(201, 7, "a"), payment(402, 7, "a")
	judgeLeft(t, []judgedLeft{
		{"carried out and replayed", list(last(created), created), one, nil},
		{"two effects", list(created), Left{Paid: []Paid{{1, 7}, {1, 8}}}, ErrPaidTwice},
		{"effects of two keys", list(created), Left{Paid: []Paid{{1, 7}, {2, 8}}}, nil},
		{"no effect", list(created), Left{}, ErrNotPaid},
		{"another effect", list(payment(201, 8, "a")), one, ErrNotPaid},
		{"declined", list(declined, declined), Left{}, nil},
		{"declined, and an effect", list(declined), one, ErrDeclined},
		{"declined by a run whose lock was lost", list(payment(402, 6, "a"), created), one, nil},
		{"declined, replayed, and an effect", list(replayed(payment(402, 6, "a"))), one, ErrDeclined},
		{"another body", list(created, payment(201, 7, "b")), one, ErrTwoResponses},
		{"another status", list(created, payment(200, 7, "a")), one, ErrTwoResponses},
		{"declined by another run", list(replayed(declined), replayed(payment(402, 8, "a"))), Left{}, ErrTwoResponses},
		{"an effect without a response", list(last(payment(201, 7, "a")), payment(0, 0, "")), one, nil},
		{"another payload is carried out", list(created, withOther(created)), one, ErrOtherPayload},
		{"another payload is rejected", list(created, last(withOther(payment(422, 0, "")))), one, nil},
		{"the same payload is rejected", list(payment(422, 0, "")), one, ErrStatus},
		{"the handler fails", list(payment(500, 8, ""), created), one, nil},
		{"the middleware fails", list(payment(500, 0, "")), one, ErrStatus},
		{"the middleware knows no route", list(payment(404, 0, "")), one, ErrStatus},
		{"in flight, and away", list(payment(409, 0, ""), payment(503, 0, ""), payment(503, 9, "")), one, nil},
		{"never carried out", list(payment(503, 0, ""), last(payment(503, 0, ""))), one, ErrUnanswered},
		{"never without a response", list(last(payment(0, 0, ""))), Left{}, ErrUnanswered},
	})
}
