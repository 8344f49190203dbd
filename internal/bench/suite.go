package bench

// Config says what to measure on.
type Config struct {
	// Image is the path of the image file, Templates the folder of the
	// templates.
	Image, Templates string
	// Engine names what runs the sandboxes (package host); empty takes the best
	// there is.
	Engine string
	// Native is the host's Python to compare with, python3 if empty.
	Native string
	// Run is a program file and the arguments, from the program's name on,
	// that run print(6*7) in a process of its own.
	Run []string
	// Progress, if set, hears what is being done.
	Progress func(string)
}
