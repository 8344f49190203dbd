package cli

import (
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/microvm"
)

// MachineFlags are the flags that say what kind of machine to open.
type MachineFlags struct {
	Image  string
	Memory Size
	Engine Choice
	Limits Choice
}

// Register gives the flags their defaults and adds them to fl.
func (m *MachineFlags) Register(fl *pflag.FlagSet) {
	m.Memory = Size{Bytes: microvm.DefaultMemory, Min: microvm.MinMemory, Max: microvm.MaxMemory}
	m.Engine = Choice{Value: "auto", Choices: []string{"auto", "kvm"}}
	fl.Var(&m.Memory, "memory", "memory for Python objects")
	ImageFlag(fl, &m.Image)
	fl.Var(&m.Engine, "engine", "what runs the sandbox")
	LimitsFlag(fl, &m.Limits)
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
	fl.Var(limits, "limits", "how the kernel bounds a sandbox's process; auto is the strongest way this machine offers")
}

// Options gives what the flags say.
func (m *MachineFlags) Options(progress func(string)) Options {
	return Options{Image: m.Image, Memory: m.Memory.Bytes, Engine: m.Engine.Value, Limits: m.Limits.Value, Progress: progress}
}
