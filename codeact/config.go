package codeact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// Kind is the kind of the tool's sandboxes: what keeps them apart from others of
// the same key.
const Kind = "codeact"

// Defaults and bounds of a Config. The time-out and the bound on programs are
// those of the Python original.
const (
	// DefaultTimeout is the time of a program when a Config names none.
	DefaultTimeout = 120 * time.Second
	// MaxCode bounds a program, in bytes of UTF-8; a backend may allow less.
	MaxCode = 8 << 20
	// MaxInstructions bounds Config.Instructions, and MaxToolText what generated
	// ones say of tools, in bytes: every request to a model carries them.
	MaxInstructions = 16 << 10
	MaxToolText     = 16 << 10
)

// Caller is for whom a call is.
type Caller struct {
	// Scope is the tenant, such as a user's id.
	Scope string
	// ThreadID is the conversation. A call without one is answered with a text
	// that says so.
	ThreadID string
}

// Shape is how an outcome is put into texts for the model. Zero is plain.
type Shape uint8

// The shapes.
const (
	// ShapePlain is one text, the report alone: the shape of
	// maf-sandbox-codeact 0.18. It says as much as the other with fewer words.
	ShapePlain Shape = iota
	// ShapeLabelled is a list of texts that begins with whether the program came
	// to an end of its own, and how: the shape of maf-sandbox-codeact 0.25.
	ShapeLabelled
)

var shapeWords = []string{"plain", "labelled"}

// String is the shape in one word.
func (s Shape) String() string {
	if int(s) < len(shapeWords) {
		return shapeWords[s]
	}
	return "no shape"
}

// Bounds are a backend's limits as far as the model should know them. Zero
// fields are not mentioned.
type Bounds struct {
	// Memory is what Python objects may take, MaxOutput what a program may
	// print, MaxCode how long it may be; all in bytes.
	Memory, MaxOutput, MaxCode int64
	// HTTPBody bounds the body of a request of a program and that of its answer,
	// in bytes, HTTPTime the whole of it.
	HTTPBody int64
	HTTPTime time.Duration
}

// Config says what a tool is like. AgentID and Caller are needed.
type Config struct {
	// AgentID is the agent, in the keys of its sandboxes.
	AgentID string
	// Caller says for whom a call is, from the host's own context. It is asked
	// at every call, from the goroutine of the call.
	Caller func(ctx context.Context) Caller

	// Timeout bounds a program, and the wait for each call ahead; DefaultTimeout
	// when zero.
	Timeout time.Duration
	// Allow are the hosts that programs may reach; none closes the network.
	Allow []sandbox.EgressRule
	// Image and ImageID name what sandboxes are made of, in the backend's terms;
	// empty means the backend's own choice.
	Image, ImageID string

	// Tools are functions of the host that programs can call; generated
	// instructions list them with description and parameters. The model writes
	// the calls: a tool that acts for the user makes the whole tool ask for a
	// person's word, see Tool.ApprovalMode.
	Tools []sandbox.Tool
	// MaxToolCalls bounds the calls of one program; zero is no bound.
	MaxToolCalls int

	// Instructions is what the model is told of the place where its programs
	// run, up to MaxInstructions. When empty it is what is true of the sandboxes of package microvm,
	// made from the fields round it.
	Instructions string
	// Facts are what generated instructions say of the image, such as those of
	// microvm.Backend.Facts; they are general without.
	Facts sandbox.Facts
	// Bounds are what generated instructions say of limits.
	Bounds Bounds
	// KeepsState says that calls of one conversation find what earlier ones left,
	// as with a Router that enters once for all of them ([router.Router.Enter]),
	// serves each in that call and finishes it at the end of the conversation: a
	// *router.Router itself cleans up after each. Generated instructions and the
	// texts of lost sandboxes say so. It changes nothing else.
	KeepsState bool
	// Shape is how outcomes are told.
	Shape Shape
	// MaxShown bounds how many bytes of standard output, and of standard error, a
	// report shows: of more than that it shows the beginning and the end. MinShown or
	// more; zero shows everything, as the Python original does.
	MaxShown int

	// Logger hears why a call did not come to an end: a warning when the host can
	// do something about it, else information. It is nobody when nil, and gets no
	// text of programs, of what they print or of what a sandbox says of them.
	Logger *slog.Logger
}

// decider names this package in refusals.
const decider = "package codeact"

func refuse(field, asked, allowed string) error {
	return &sandbox.RefusalError{
		Reason: sandbox.ErrInvalid, Subject: "config." + field, Asked: asked, Allowed: allowed, Decider: decider,
	}
}

// withDefaults fills in what is not set and reports every problem at once.
func (c Config) withDefaults() (Config, error) {
	var problems []error
	refused := func(field, asked, allowed string) { problems = append(problems, refuse(field, asked, allowed)) }
	// The rest of the key is not known yet.
	if err := (sandbox.Key{Scope: "-", ThreadID: "-", AgentID: c.AgentID}).Validate(); err != nil {
		problems = append(problems, err)
	}
	if c.Caller == nil {
		refused("caller", "nil", "a function: who a call is for cannot be guessed")
	}
	if c.Timeout < 0 {
		refused("timeout", c.Timeout.String(), "zero for the default, or more")
	}
	if c.Instructions != "" {
		switch {
		case strings.TrimSpace(c.Instructions) == "" || !utf8.ValidString(c.Instructions):
			refused("instructions", "text that is blank or not UTF-8", "text, or none for what is true of package microvm")
		case len(c.Instructions) > MaxInstructions:
			refused("instructions", fmt.Sprintf("%d bytes", len(c.Instructions)), fmt.Sprintf("up to %d", MaxInstructions))
		}
	}
	for _, bound := range []struct {
		field string
		value int64
	}{{"memory", c.Bounds.Memory}, {"max_output", c.Bounds.MaxOutput}, {"max_code", c.Bounds.MaxCode}, {"http_body", c.Bounds.HTTPBody}} {
		if bound.value < 0 {
			refused("bounds."+bound.field, fmt.Sprintf("%d bytes", bound.value), "zero for what is not known, or more")
		}
	}
	if c.Bounds.HTTPTime < 0 {
		refused("bounds.http_time", c.Bounds.HTTPTime.String(), "zero for what is not known, or more")
	}
	if err := c.Facts.Validate(); err != nil {
		problems = append(problems, err)
	}
	if len(c.Tools) > 0 && c.Instructions != "" {
		refused("tools", fmt.Sprintf("%d tools beside instructions", len(c.Tools)), "tools with generated instructions, which list them")
	}
	if c.MaxToolCalls < 0 {
		refused("max_tool_calls", fmt.Sprint(c.MaxToolCalls), "zero for no bound, or more")
	}
	if c.MaxShown != 0 && c.MaxShown < MinShown {
		refused("max_shown", fmt.Sprintf("%d bytes", c.MaxShown), fmt.Sprintf("zero for everything, or at least %d", MinShown))
	}
	if int(c.Shape) >= len(shapeWords) {
		refused("shape", fmt.Sprint(uint8(c.Shape)), strings.Join(shapeWords, " or "))
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Allow, c.Tools = slices.Clone(c.Allow), slices.Clone(c.Tools)
	c.Facts.Packages = slices.Clone(c.Facts.Packages)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(problems...)
}

// hostTools are the tools for the spec, nil when there are none.
func (c Config) hostTools() (*sandbox.HostTools, error) {
	if len(c.Tools) == 0 {
		return nil, nil //nolint:nilnil // a spec says it so
	}
	tools, err := sandbox.NewHostTools(c.Tools...)
	if err != nil {
		return nil, err
	}
	tools.MaxCallsPerRun = c.MaxToolCalls
	if n := len(c.aboutTools()); n > MaxToolText {
		return nil, refuse("tools", fmt.Sprintf("%d bytes of names, descriptions and parameters", n), fmt.Sprintf("up to %d", MaxToolText))
	}
	return tools, nil
}

// spec is what the tool's sandboxes must be: the original's, without the
// channels for files.
func (c Config) spec(instructions string, tools *sandbox.HostTools) sandbox.Spec {
	spec := sandbox.Spec{
		Kind: Kind, Image: c.Image, ImageID: c.ImageID,
		Requires:           sandbox.SetOf(sandbox.CapRunCode),
		ExclusiveAdmission: true,
		ExecutionContract:  contract(instructions, c.Shape),
	}
	if tools != nil {
		spec.Requires, spec.HostTools = spec.Requires.With(sandbox.CapHostTools), tools
	}
	if len(c.Allow) > 0 {
		spec.Egress, spec.EgressAllow = sandbox.EgressAllowlist, c.Allow
	}
	return spec
}
