package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
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
func (z *Size) Type() string { return "size" }

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
		return fmt.Errorf("must be above zero and at most %v", MaxDuration)
	}
	d.Value = v
	return nil
}

// String gives the time as Go writes it.
func (d *Duration) String() string { return d.Value.String() }

// Type is the word that help shows for the value.
func (d *Duration) Type() string { return "time" }

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
	return fmt.Errorf("want one of %s", strings.Join(c.Choices, ", "))
}

// String gives the word.
func (c *Choice) String() string { return c.Value }

// Type is what help shows for the value.
func (c *Choice) Type() string { return strings.Join(c.Choices, "|") }

// Args wraps a check of positional arguments so that what it finds is a usage
// error.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &UsageError{Err: err}
		}
		return nil
	}
}

// Group makes cmd a command that only holds others: alone it shows its help,
// and a word that is none of its commands is a usage error.
func Group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usagef("unknown command %q for %q", args[0], cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}
