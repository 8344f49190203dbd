package sandboxtest

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// Programs writes the programs of the conformance suite in the language of a
// backend. Optional ones may be nil; their rules are then skipped.
type Programs struct {
	// Print writes exactly the text to standard output, and PrintError to
	// standard error.
	Print, PrintError func(text string) string
	// Set stores a text under a name that lives until a reset.
	Set func(name, value string) string
	// Get prints what is stored, and fails (exit code not 0) if nothing is.
	Get func(name string) string
	// Exit ends the program with an exit code.
	Exit func(code int) string
	// Raise fails as by an uncaught error with this message.
	Raise func(message string) string
	// Forever never ends and writes nothing.
	Forever string
	// Busy keeps the sandbox occupied for about that long, then ends.
	Busy func(d time.Duration) string
	// Spam writes that many bytes, all the same ASCII letter.
	Spam func(bytes int) string
	// PrintBytes writes bytes that need not be text to standard output.
	// Optional.
	PrintBytes func(data []byte) string
	// CallTool calls a tool of the host with the arguments, a JSON object, and
	// writes the result as JSON without spaces to standard output. A tool that
	// fails is an uncaught error that carries tool and message. Optional.
	CallTool func(name, arguments string) string
}

// CommandPrograms are the programs in the commands of [Interpret]. PrintBytes
// uses that these may print any bytes.
func CommandPrograms() Programs {
	quoted := func(command string) func(string) string {
		return func(text string) string { return command + " " + strconv.Quote(text) }
	}
	return Programs{
		Print:      quoted("print"),
		PrintError: quoted("eprint"),
		Set:        func(name, value string) string { return fmt.Sprintf("set %q %q", name, value) },
		Get:        quoted("get"),
		Exit:       func(code int) string { return fmt.Sprintf("exit %d", code) },
		Raise:      quoted("raise"),
		Forever:    "forever",
		Busy:       func(d time.Duration) string { return fmt.Sprintf("sleep %q", d) },
		Spam:       func(bytes int) string { return fmt.Sprintf("spam %d", bytes) },
		PrintBytes: func(data []byte) string { return quoted("print")(string(data)) },
		CallTool:   func(name, arguments string) string { return fmt.Sprintf("call %q %q", name, arguments) },
	}
}

// PythonPrograms are the programs in Python.
func PythonPrograms() Programs {
	// A Python string literal of any UTF-8 text, made of ASCII only.
	literal := func(text string) string {
		return fmt.Sprintf("bytes.fromhex('%s').decode()", hex.EncodeToString([]byte(text)))
	}
	write := func(stream string) func(string) string {
		return func(text string) string {
			return fmt.Sprintf("import sys\nsys.%s.write(%s)\nsys.%s.flush()\n", stream, literal(text), stream)
		}
	}
	return Programs{
		Print:      write("stdout"),
		PrintError: write("stderr"),
		Set:        func(name, value string) string { return fmt.Sprintf("%s = %s\n", name, literal(value)) },
		Get:        func(name string) string { return fmt.Sprintf("print(%s, end='')\n", name) },
		Exit:       func(code int) string { return fmt.Sprintf("raise SystemExit(%d)\n", code) },
		Raise:      func(message string) string { return fmt.Sprintf("raise ValueError(%s)\n", literal(message)) },
		Forever:    "while True:\n    pass\n",
		Busy: func(d time.Duration) string {
			return fmt.Sprintf("import time\ntime.sleep(%g)\n", d.Seconds())
		},
		Spam: func(bytes int) string { return fmt.Sprintf("print('x' * %d, end='')\n", bytes) },
		PrintBytes: func(data []byte) string {
			return fmt.Sprintf("import sys\nsys.stdout.buffer.write(bytes.fromhex('%s'))\nsys.stdout.flush()\n",
				hex.EncodeToString(data))
		},
		CallTool: func(name, arguments string) string {
			return fmt.Sprintf("import json\nresult = call_tool(%s, **json.loads(%s))\nprint(json.dumps(result, separators=(',', ':')), end='')\n",
				literal(name), literal(arguments))
		},
	}
}
