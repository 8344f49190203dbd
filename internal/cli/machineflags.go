package cli

import (
	"github.com/spf13/pflag"

	"github.com/maf-sandbox/maf-sandbox-go/internal/engine"
	"github.com/maf-sandbox/maf-sandbox-go/internal/platform/host"
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
	fl.Var(&m.Memory, "memory", "memory for Python objects")
	ImageFlag(fl, &m.Image)
	EngineFlag(fl, &m.Engine)
}

// EngineFlag adds the flag that says what runs the sandbox.
func EngineFlag(fl *pflag.FlagSet, engine *Choice) {
	*engine = Choice{Value: host.Auto, Choices: host.Names()}
	fl.Var(engine, "engine", "what runs the sandbox")
}

// ImageFlag adds the flag that names an image.
func ImageFlag(fl *pflag.FlagSet, image *string) {
	fl.StringVar(image, "image", "", "Python image: a stored `NAME` or an image file (default: this machine's python3)")
}

// Options gives what the flags say.
func (m *MachineFlags) Options(progress func(string)) Options {
	return Options{Image: m.Image, Memory: m.Memory.Bytes, Engine: m.Engine.Value, Progress: progress}
}
