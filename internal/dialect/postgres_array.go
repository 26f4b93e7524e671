package dialect

import (
	"database/sql/driver"
	"strconv"
	"strings"
)

// appendText appends the keys of one space as the text of a bigint[], which
// every driver passes on as it is. A []int64, which pgx sends in binary, spares
// the server some work and costs the client more than that.
func appendText(text []byte, keys []Key, of Space) []byte {
	text = append(text, '{')
	for _, k := range keys {
		if k.Space != of {
			continue
		}
		text = strconv.AppendInt(text, k.ID, 10)
		text = append(text, ',')
	}
	if text[len(text)-1] == ',' {
		text = text[:len(text)-1]
	}
	return append(text, '}')
}

// textOfGroups is groups as the text of a text[] whose elements are each the
// text of a bigint[]: SQL has no arrays of arrays of different lengths.
func textOfGroups(groups [][]Key) string {
	text := []byte{'{'}
	for i, g := range groups {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '"')
		text = appendText(text, g, Bigint)
		text = append(text, '"')
	}
	return string(append(text, '}'))
}

// parseArray reads the text of a bigint[], as a driver gives it.
func parseArray(column driver.Value) ([]int64, error) {
	var text string
	switch column := column.(type) {
	case string:
		text = column
	case []byte:
		if string(column) == "{}" {
			return nil, nil
		}
		text = string(column)
	default:
		return nil, errNonsense
	}
	inner, ok := strings.CutPrefix(text, "{")
	inner, ok2 := strings.CutSuffix(inner, "}")
	if !ok || !ok2 {
		return nil, errNonsense
	}
	if inner == "" {
		return nil, nil
	}
	var numbers []int64
	for item := range strings.SplitSeq(inner, ",") {
		n, err := strconv.ParseInt(item, 10, 64)
		if err != nil {
			return nil, errNonsense
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
