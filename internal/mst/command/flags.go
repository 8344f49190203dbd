package command

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/control"
	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// maxSeconds bounds times that are typed: 31 years, which a time.Duration can
// hold many times over.
const maxSeconds = 1e9

// seconds is a flag value: a time above zero, as a number of seconds or as a
// duration of Go.
type seconds struct{ value time.Duration }

// Set takes what Python's float takes, but for underscores, and what
// [time.ParseDuration] takes; more than maxSeconds is as good as that.
func (s *seconds) Set(text string) error {
	n, err := parseFloat(text)
	if err != nil {
		d, durationErr := time.ParseDuration(strings.TrimSpace(text))
		if durationErr != nil {
			return errors.New("must be a number of seconds, or a duration such as 500ms, 30s or 1m30s")
		}
		n = d.Seconds()
	}
	if math.IsNaN(n) || math.IsInf(n, 0) || n <= 0 {
		return errors.New("must be a finite positive number of seconds")
	}
	// Less than the clock's resolution is still above zero.
	s.value = max(time.Nanosecond, time.Duration(min(n, maxSeconds)*float64(time.Second)))
	return nil
}

// String is the number.
func (s *seconds) String() string { return strconv.FormatFloat(s.value.Seconds(), 'f', -1, 64) }

// Type is the word that help shows for the value.
func (s *seconds) Type() string { return "seconds" }

// parseFloat reads a decimal number; one that is too large is infinite.
func parseFloat(text string) (float64, error) {
	text = strings.TrimSpace(text)
	if strings.ContainsAny(text, "xXpP_") {
		return 0, errors.New("no decimal number")
	}
	n, err := strconv.ParseFloat(text, 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil
	}
	return n, err
}

// age is a flag value: a time of zero or more, as a number with an optional
// unit of one letter.
type age struct{ value time.Duration }

var ageUnits = map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}

// Set parses text.
func (a *age) Set(text string) error {
	number, unit := strings.ToLower(strings.TrimSpace(text)), 1.0
	if number != "" {
		if u, ok := ageUnits[number[len(number)-1]]; ok {
			number, unit = number[:len(number)-1], u
		}
	}
	n, err := parseFloat(number)
	if err != nil || number == "" {
		return errors.New("use seconds or a duration such as 30s, 5m, 2h or 1d")
	}
	n *= unit
	if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
		return errors.New("duration must be finite and nonnegative")
	}
	a.value = time.Duration(min(n, maxSeconds) * float64(time.Second))
	return nil
}

// String is the number of seconds.
func (a *age) String() string { return strconv.FormatFloat(a.value.Seconds(), 'f', -1, 64) }

// Type is the word that help shows for the value.
func (a *age) Type() string { return "age" }

// count is a flag value: a whole number of zero or more.
type count int

// Set parses text.
func (c *count) Set(text string) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 {
		return errors.New("must be a nonnegative integer")
	}
	*c = count(n)
	return nil
}

// String is the number.
func (c *count) String() string { return strconv.Itoa(int(*c)) }

// Type is the word that help shows for the value.
func (c *count) Type() string { return "n" }

// connection are the flags that say which hosts to ask, and whether to answer
// in JSON. They stand before or after the command, and both places fill the
// same values.
type connection struct {
	demo             bool
	endpoint, source string
	json             bool
	version          bool // of the program alone, not of its commands
}

func (c *connection) hosts(flags *pflag.FlagSet) {
	flags.BoolVar(&c.demo, "demo", c.demo, "run against a temporary demo host")
	flags.Var((*endpointValue)(&c.endpoint), "endpoint", "ask the host at this literal loopback `URL` instead of discovering hosts")
	flags.StringVar(&c.source, "source", c.source, "`label` of the host at --endpoint")
}

// endpointValue is a flag value: the URL of a host. An empty one, as from a
// variable that is not set, would mean all hosts.
type endpointValue string

// Set accepts all but the empty text; the URL is checked when it is used.
func (v *endpointValue) Set(text string) error {
	if text == "" {
		return errors.New("must not be empty")
	}
	*v = endpointValue(text)
	return nil
}

// String gives the URL.
func (v *endpointValue) String() string { return string(*v) }

// Type is the word that help shows for the value.
func (v *endpointValue) Type() string { return "URL" }

func (c *connection) output(flags *pflag.FlagSet) {
	flags.BoolVar(&c.json, "json", c.json, "print JSON instead of text for people")
}

// output is the flag -o.
type output struct {
	word    string
	allowed []string
}

func (o *output) add(cmd *cobra.Command, allowed ...string) {
	o.allowed = allowed
	cmd.Flags().VarP(o, "output", "o", "how to print: "+strings.Join(allowed, ", "))
	completeWords(cmd, "output", allowed)
}

// Set accepts one of the words.
func (o *output) Set(word string) error {
	if !slices.Contains(o.allowed, word) {
		return fmt.Errorf("want one of %s", strings.Join(o.allowed, ", "))
	}
	o.word = word
	return nil
}

// String gives the word.
func (o *output) String() string { return o.word }

// Type is the word that help shows for the value.
func (o *output) Type() string { return "format" }

// format joins -o with --json, which must not contradict each other.
func (o *output) format(json bool) (format, error) {
	if json && o.word != "" && o.word != "json" && o.word != "jsonl" {
		return 0, usagef("--json and --output %s exclude each other", o.word)
	}
	switch {
	case o.word == "jsonl":
		return formatJSONLines, nil
	case json, o.word == "json":
		return formatJSON, nil
	case o.word == "wide":
		return formatWide, nil
	}
	return formatTable, nil
}

// selection are the flags that choose sandboxes.
type selection struct {
	exact     map[string]*string
	state     string
	olderThan age
}

// exactFlags are the flags for properties that must be equal, with the columns
// that show them.
var exactFlags = []struct{ flag, column, usage string }{
	{"host", "source", "only sandboxes of this `source`"},
	{"backend", "backend", "only sandboxes of this backend `name`"},
	{"scope", "scope", "only sandboxes of this `scope`"},
	{"thread", "thread", "only sandboxes of the conversation with this `id`"},
	{"kind", "kind", "only sandboxes of this `kind`"},
}

func (s *selection) add(cmd *cobra.Command, f *Factory, c *connection) {
	s.exact = make(map[string]*string)
	for _, e := range exactFlags {
		s.exact[e.flag] = cmd.Flags().String(e.flag, "", e.usage)
		complete(cmd, e.flag, f.completeProperty(c, e.column))
	}
	states := stateWords()
	cmd.Flags().Var((*stateValue)(&s.state), "state", "only sandboxes in this state: "+strings.Join(states, ", "))
	completeWords(cmd, "state", states)
	cmd.Flags().Var(&s.olderThan, "older-than", "only sandboxes whose last lifecycle signal is at least as old: 30s, 5m, 2h, 1d or seconds")
}

func (s *selection) selection(flags *pflag.FlagSet) view.Selection {
	chosen := view.Selection{Exact: make(map[string]string), OlderThan: s.olderThan.value}
	for _, f := range exactFlags {
		if flags.Changed(f.flag) {
			chosen.Exact[f.column] = *s.exact[f.flag]
		}
	}
	if s.state != "" {
		chosen.Exact["state"] = s.state
	}
	return chosen
}

// stateWords are the protocol's states.
func stateWords() []string {
	words := make([]string, 0, 6)
	for _, state := range control.States() {
		words = append(words, string(state))
	}
	return words
}

// stateValue is a flag value: one of the protocol's states.
type stateValue string

// Set accepts one of the states.
func (v *stateValue) Set(word string) error {
	state, err := control.ParseState(word)
	if err != nil {
		return fmt.Errorf("want one of %s", strings.Join(stateWords(), ", "))
	}
	*v = stateValue(state)
	return nil
}

// String gives the word.
func (v *stateValue) String() string { return string(*v) }

// Type is the word that help shows for the value.
func (v *stateValue) Type() string { return "state" }

// completeWords has shells complete a flag's values.
func completeWords(cmd *cobra.Command, flag string, words []string) {
	complete(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func complete(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	// The error is about a flag that does not exist, and it does.
	_ = cmd.RegisterFlagCompletionFunc(flag, by)
}
