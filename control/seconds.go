package control

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/wirejson"
	"github.com/maf-sandbox/maf-sandbox-go/internal/pyjson"
)

// pythonFloat is what Python's float takes: digits with single underscores
// between them, and white space around, which is cut off before.
var pythonFloat = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)([eE][+-]?\d+(_\d+)*)?$`)
})

// maxSecondsText bounds the text of a number that is looked at.
const maxSecondsText = 64

var (
	errTimeoutTwice = errors.New("timeout must be specified once")
	errTimeoutRange = errors.New("timeout must be a finite positive number of seconds")
)

// parseTimeout reads the timeout of a request: all values that its query has
// under that name. None means the longest; more than the longest is cut down to
// it. The error's text is for the client.
func parseTimeout(values []string, longest time.Duration) (time.Duration, error) {
	switch len(values) {
	case 0:
		return longest, nil
	case 1:
	default:
		return 0, errTimeoutTwice
	}
	seconds, err := parseSeconds(values[0])
	if err != nil {
		return 0, err
	}
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds <= 0 {
		return 0, errTimeoutRange
	}
	if seconds >= longest.Seconds() {
		return longest, nil
	}
	// A time below the clock's resolution is still one.
	return max(time.Nanosecond, time.Duration(seconds*float64(time.Second))), nil
}

func parseSeconds(text string) (float64, error) {
	trimmed := strings.TrimSpace(text)
	switch strings.ToLower(strings.TrimLeft(trimmed, "+-")) {
	case "inf", "infinity", "nan":
		return math.NaN(), nil
	}
	if len(trimmed) > maxSecondsText || !pythonFloat().MatchString(trimmed) {
		return 0, errors.New("could not convert string to float: '" + wirejson.Cut(printable(text), maxQuoted) + "'")
	}
	// Out of range gives infinity, as in Python.
	seconds, _ := strconv.ParseFloat(strings.ReplaceAll(trimmed, "_", ""), 64)
	return seconds, nil
}

// printable replaces what could confuse a reader of the message.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '\'' {
			return '?'
		}
		return r
	}, text)
}

// formatTimeout is a time as the query of a request has it.
func formatTimeout(d time.Duration) string {
	return string(pyjson.AppendFloat(nil, d.Seconds()))
}
