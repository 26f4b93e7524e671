package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The parameters are texts of arrays, which every driver passes on unchanged. A
// []int64, which pgx sends in binary, saves the server less than it costs the
// client.

func appendReleases(text []byte, b *dialect.Batch, f form) []byte {
	return appendKeys(text, b.Release, f)
}

func appendTries(text []byte, b *dialect.Batch, f form) []byte { return appendKeys(text, b.Try, f) }

// appendKeys appends keys as the text of a bigint[]: the space and the id of
// each, or in a plain form the id alone.
func appendKeys(text []byte, keys []dialect.Key, f form) []byte {
	text = append(text, '{')
	for _, k := range keys {
		if f&plain != 0 {
			text = strconv.AppendInt(text, k.ID, 10)
		} else {
			text = appendKey(text, k)
		}
		text = append(text, ',')
	}
	return closeArray(text)
}

func appendKey(text []byte, k dialect.Key) []byte {
	return strconv.AppendInt(append(text, '0'+byte(k.Space), ','), k.ID, 10)
}

// closeArray ends the text of an array, whose elements each have a comma behind
// them. The array may be empty.
func closeArray(text []byte) []byte {
	if text[len(text)-1] == ',' {
		text = text[:len(text)-1]
	}
	return append(text, '}')
}

// appendLooks appends the looks of b as the text of a text[]. Each element is the
// text of a bigint[], since SQL has no arrays of arrays of different lengths.
func appendLooks(text []byte, b *dialect.Batch, _ form) []byte {
	text = append(text, '{')
	for i := range b.Looks {
		text = append(text, `"{`...)
		text = strconv.AppendInt(text, int64(b.Looks[i].Want), 10)
		for _, k := range b.Looks[i].Keys {
			text = appendKey(append(text, ','), k)
		}
		text = append(text, `}",`...)
	}
	return closeArray(text)
}

// appendStacks appends the stacks of b like appendLooks.
func appendStacks(text []byte, b *dialect.Batch, _ form) []byte {
	text = append(text, '{')
	for i := range b.Stacks {
		text = append(text, `"{`...)
		for level, keys := range b.Stacks[i].Levels {
			for _, k := range keys {
				text = append(strconv.AppendInt(text, int64(level)+1, 10), ',')
				text = append(appendKey(text, k), ',')
			}
		}
		text = append(closeArray(text), `",`...)
	}
	return closeArray(text)
}

// appendPlainStacks appends the number of levels, and the ids of all stacks.
func appendPlainStacks(text []byte, b *dialect.Batch, _ form) []byte {
	text = append(strconv.AppendInt(append(text, '{'), int64(len(b.Stacks[0].Levels)), 10), ',')
	for i := range b.Stacks {
		for _, keys := range b.Stacks[i].Levels {
			text = append(strconv.AppendInt(text, keys[0].ID, 10), ',')
		}
	}
	return closeArray(text)
}

// parseArray reads the text of a bigint[].
func parseArray(text string) ([]int64, error) {
	inner, ok1 := strings.CutPrefix(text, "{")
	inner, ok2 := strings.CutSuffix(inner, "}")
	if !ok1 || !ok2 {
		return nil, dialect.ErrNonsense
	}
	return parseNumbers(inner)
}

// parseNumbers reads numbers with commas between them.
func parseNumbers(list string) (numbers []int64, err error) {
	if list == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(item, 10, 64)
		if err != nil {
			return nil, dialect.ErrNonsense
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// ParseKeys reads a list of keys in the form space,id,space,id.
func ParseKeys(list string) (keys []dialect.Key, err error) {
	numbers, err := parseNumbers(list)
	if err != nil || len(numbers)%2 != 0 {
		return nil, dialect.ErrNonsense
	}
	for pair := range slices.Chunk(numbers, 2) {
		if pair[0] < 0 || pair[0] > int64(dialect.TwoInts|dialect.Shared) {
			return nil, dialect.ErrNonsense
		}
		keys = append(keys, dialect.Key{Space: dialect.Space(pair[0]), ID: pair[1]}) //nolint:gosec // compared above
	}
	return keys, nil
}

// Interval returns d as an SQL expression, to the microsecond. A negative d
// counts as zero.
//
// The expression has hours, minutes and seconds, since PostgreSQL 14 reads no
// number of microseconds or seconds above 2^31. CockroachDB reads it as well.
func Interval(d time.Duration) string {
	us := max(d.Microseconds(), 0)
	s := us / 1e6
	return fmt.Sprintf("interval '%d:%02d:%02d.%06d'", s/3600, s/60%60, s%60, us%1e6)
}
