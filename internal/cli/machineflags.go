package cli

import (
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
)

// MachineFlags are the flags that say what kind of machine to open.
type MachineFlags struct {
	Image  string
	Memory Size
	Engine Choice
}

// Register gives the flags their defaults and adds them to fl.
func (m *MachineFlags) Register(fl *pflag.FlagSet) {
	m.Memory = Size{Bytes: engine.DefaultMemory, Min: engine.MinMemory, Max: engine.MaxMemory}
	m.Engine = Choice{Value: "auto", Choices: []string{"auto", "kvm"}}
	fl.Var(&m.Memory, "memory", "memory for Python objects")
	ImageFlag(fl, &m.Image)
	fl.Var(&m.Engine, "engine", "what runs the sandbox")
}

// ImageFlag adds the flag that names an image.
func ImageFlag(fl *pflag.FlagSet, image *string) {
	fl.StringVar(image, "image", "", "Python image: a stored `NAME` or an image file (default: this machine's python3)")
}

// Options gives what the flags say.
func (m *MachineFlags) Options(progress func(string)) Options {
	return Options{Image: m.Image, Memory: m.Memory.Bytes, Engine: m.Engine.Value, Progress: progress}
}
