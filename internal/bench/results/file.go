package results

import (
	"bytes"
	"encoding/json"
	"os"
)

// Save writes r to a file, as JSON; durations are in nanoseconds.
func (r *Results) Save(file string) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(r); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// Load reads what Save has written.
func Load(file string) (*Results, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(Results)
	return r, json.Unmarshal(text, r)
}
