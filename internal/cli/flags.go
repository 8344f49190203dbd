package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// sizeUnits are the units that sizes are written in, largest first.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// Size is a flag value: a number of bytes within bounds, written as 256MiB,
// 1GiB, 64KiB or plain bytes.
type Size struct {
	Bytes    int64
	Min, Max int64
}

// Set parses s.
func (z *Size) Set(s string) error {
	n, err := ParseSize(s)
	if err != nil {
		return err
	}
	if n < z.Min || n > z.Max {
		return fmt.Errorf("must be from %s to %s", FormatSize(z.Min), FormatSize(z.Max))
	}
	z.Bytes = n
	return nil
}

// String gives the size in the largest unit that fits it exactly.
func (z *Size) String() string { return FormatSize(z.Bytes) }

// Type is the word that help shows for the value.
func (z *Size) Type() string { return "SIZE" }

var errSize = errors.New("want a size such as 256MiB, 1GiB, 64KiB or a number of bytes")

// ParseSize reads a size: digits and an optional unit, B, KiB, MiB or GiB.
func ParseSize(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if d, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, unit = d, u.bytes
			break
		}
	}
	// ParseUint takes neither sign nor space nor underscore.
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, errSize
	}
	if int64(n) > math.MaxInt64/unit {
		return 0, errors.New("too large")
	}
	return int64(n) * unit, nil
}

// FormatSize writes n bytes in the largest unit that fits it exactly.
func FormatSize(n int64) string {
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 && u.bytes > 1 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.suffix)
		}
	}
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// MaxDuration is the longest time limit that can be asked for.
const MaxDuration = 24 * time.Hour

// Duration is a flag value: a time above zero and up to MaxDuration, written as
// 500ms, 30s or 2m.
type Duration struct{ Value time.Duration }

// Set parses s.
func (d *Duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a time such as 500ms, 30s or 2m")
	}
	if v <= 0 || v > MaxDuration {
		return fmt.Errorf("must be above zero and at most %s", &Duration{MaxDuration})
	}
	d.Value = v
	return nil
}

// String gives the time as people write it: without units that are zero.
func (d *Duration) String() string {
	s := d.Value.String()
	for _, zero := range []struct{ unit, rest string }{{"m0s", "m"}, {"h0m", "h"}} {
		if rest, ok := strings.CutSuffix(s, zero.unit); ok {
			s = rest + zero.rest
		}
	}
	return s
}

// Type is the word that help shows for the value.
func (d *Duration) Type() string { return "TIME" }

// Choice is a flag value: one of a few words.
type Choice struct {
	Value   string
	Choices []string
}

// Set accepts one of the words.
func (c *Choice) Set(s string) error {
	for _, w := range c.Choices {
		if s == w {
			c.Value = s
			return nil
		}
	}
	return fmt.Errorf("want %s", c.Words())
}

// String gives the word.
func (c *Choice) String() string { return c.Value }

// Type is what help shows for the value.
func (*Choice) Type() string { return "WORD" }

// Words names the words, of which there are two at least, for help and messages.
func (c *Choice) Words() string {
	last := len(c.Choices) - 1
	return strings.Join(c.Choices[:last], ", ") + " or " + c.Choices[last]
}

// NoArgs is the check of positional arguments of a command that takes none.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no arguments, and was given %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// Group makes cmd a command that only holds others: alone it shows its help,
// and a word that is none of its commands is a usage error.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return Usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
	}
	cmd.SuggestionsMinimumDistance = typos
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// typos is how many letters a command's name may differ from the one that was
// meant.
const typos = 2

// FlagError makes a usage error of what the parser of flags says, in our words
// where its own are those of Go.
func FlagError(err error) error {
	var value *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &value) || !errors.As(err, &number) {
		return &UsageError{Err: err}
	}
	want := "a whole number"
	if number.Func == "ParseBool" {
		want = "true or false"
	}
	return Usagef("invalid argument %q for \"--%s\" flag: want %s", value.GetValue(), value.GetFlag().Name, want)
}
