package dialect

import (
	"fmt"
	"os"
	"reflect"
	"testing"
)

func TestHolder(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := Holder(), fmt.Sprintf("%s/%d", host, os.Getpid()); got != want {
		t.Errorf("Holder() = %q, want %q", got, want)
	}
}

func TestTablesOf(t *testing.T) {
	t.Parallel()
	got := TablesOf([]string{
		"CREATE TABLE a (\n\tx bigint NOT NULL,\n\t`key` text,\n\tPRIMARY KEY (x)\n)",
		"CREATE INDEX a_key ON a (\n\tx ASC)",
		"CREATE TABLE IF NOT EXISTS b (\n\ty bigint PRIMARY KEY\n)",
	})
	want := []Table{{"a", []string{"x", "key"}}, {"b", []string{"y"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the tables are %v, want %v", got, want)
	}
}
