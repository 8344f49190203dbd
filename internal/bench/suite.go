package bench

import "github.com/maf-sandbox/maf-sandbox-go/microvm"

// Config says what to measure on.
type Config struct {
	// Image is the path of the image file, CacheDir the folder that holds the
	// templates too, absolute both.
	Image, CacheDir string
	// Engine is what runs the sandboxes.
	Engine microvm.Engine
	// Limits is how the memory of sandboxes is bounded.
	Limits microvm.Enforcement
	// Native is the host's Python to compare with. When empty it is python3, and
	// benchmarks that can do without go on without.
	Native string
	// Run is a program file and the arguments, from the program's name on,
	// that run print(6*7) in a process of its own.
	Run []string
	// Cycles is how many times N12 acquires, runs and disposes; DefaultCycles
	// when zero.
	Cycles int
	// Progress, if set, hears what is being done.
	Progress func(string)
}

// How many cycles N12 goes through, unless asked otherwise and when asked for
// all that is promised.
const (
	DefaultCycles = 2000
	SoakCycles    = 100_000
)
