package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
	"github.com/maf-sandbox/maf-sandbox-go/microvm"
	"github.com/maf-sandbox/maf-sandbox-go/sandbox"
)

// MachineFlags are the flags that say what kind of machine to open.
type MachineFlags struct {
	Image  string
	Memory Size
	Engine Choice
	// MinIsolation is a word of sandbox.Isolation, or empty.
	MinIsolation Choice
	Limits       Choice
	// Allow and Private are hosts that the program may reach.
	Allow, Private []string
}

// Register gives the flags their defaults and adds them to fl.
func (m *MachineFlags) Register(fl *pflag.FlagSet) {
	m.Memory = Size{Bytes: microvm.DefaultMemory, Min: microvm.MinMemory, Max: microvm.MaxMemory}
	fl.Var(&m.Memory, "memory", "memory for Python objects")
	ImageFlag(fl, &m.Image)
	EngineFlag(fl, &m.Engine)
	m.MinIsolation = Choice{Choices: []string{"os_process", "container", "microvm"}}
	fl.Var(&m.MinIsolation, "min-isolation", "refuse to run with less than this between program and host: "+m.MinIsolation.Words())
	LimitsFlag(fl, &m.Limits)
}

// RegisterHosts adds the flags that say what the program may reach.
func (m *MachineFlags) RegisterHosts(fl *pflag.FlagSet) {
	fl.StringArrayVar(&m.Allow, "allow", nil, "let the program reach this `HOST` over HTTP; can be repeated")
	fl.StringArrayVar(&m.Private, "allow-private", nil, "the same for a `HOST` on a private or loopback address")
}

// EngineFlag adds the flag that says what runs the sandbox.
func EngineFlag(fl *pflag.FlagSet, engine *Choice) {
	*engine = Choice{Value: host.Auto, Choices: host.Names()}
	fl.Var(engine, "engine", "what runs the sandbox: "+engine.Words())
}

// ImageFlag adds the flag that names an image.
func ImageFlag(fl *pflag.FlagSet, image *string) {
	fl.StringVar(image, "image", "", "Python image: a stored `NAME` or an image file (default: this machine's python3)")
}

// LimitsFlag adds the flag that says how a sandbox's process is bounded.
func LimitsFlag(fl *pflag.FlagSet, limits *Choice) {
	*limits = Choice{Value: LimitsAuto, Choices: []string{
		LimitsAuto, string(microvm.EnforceCgroup), string(microvm.EnforceSystemd), string(microvm.EnforceRlimit),
	}}
	fl.Var(limits, "limits", "how the kernel bounds a sandbox's process: "+limits.Words()+"; auto is the strongest way this machine offers")
}

// Options gives what the flags say. A host that is none is a usage error.
func (m *MachineFlags) Options(progress func(string)) (Options, error) {
	o := Options{Image: m.Image, Memory: m.Memory.Bytes, Engine: m.Engine.Value, Limits: m.Limits.Value, Progress: progress}
	if err := o.MinIsolation.UnmarshalText([]byte(m.MinIsolation.Value)); err != nil {
		return o, &UsageError{Err: err}
	}
	var err error
	o.Allow, o.Private, err = Hosts(m.Allow, m.Private)
	return o, err
}

// Hosts reads the values of --allow and --allow-private. One that is no host is a
// usage error.
func Hosts(allow, private []string) (open, inside []sandbox.Host, err error) {
	for _, list := range []struct {
		flag  string
		names []string
		to    *[]sandbox.Host
	}{{"--allow", allow, &open}, {"--allow-private", private, &inside}} {
		for _, name := range list.names {
			h, err := sandbox.ParseHost(name)
			if err != nil {
				return nil, nil, &UsageError{Err: &hostError{flag: list.flag, name: name, refusal: err}}
			}
			*list.to = append(*list.to, h)
		}
	}
	return open, inside, nil
}

// hostError says in a line what a person takes for a host and is none; the
// protocol's refusal behind it is longer.
type hostError struct {
	flag, name string
	refusal    error
}

// Error says what is wanted.
func (e *hostError) Error() string {
	return fmt.Sprintf("%s: %.300q is no host: want a name or an IPv4 address, such as api.example.com, without scheme, port and path", e.flag, e.name)
}

// Unwrap gives the refusal.
func (e *hostError) Unwrap() error { return e.refusal }
