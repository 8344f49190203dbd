package command

import "github.com/maf-sandbox/maf-sandbox-go/control"

// environment are the variables that mst heeds.
var environment = []struct{ name, meaning string }{
	{"MAF_SANDBOX_TUI_RUNTIME_DIR", "The folder in which hosts announce themselves, instead of the user's own."},
	{"NO_COLOR", "Any value: no colour."},
	{"CLICOLOR_FORCE", "Any value but 0: colour in a pipe too."},
	{"CLICOLOR", "0: no colour."},
	{"TERM", "dumb: no colour, no console."},
}

// colours of states and healths: the terminal's own green, yellow and red,
// which its user chose to be readable.
var colours = map[string]string{
	string(control.StateReady): "32", string(control.StateRunning): "32",
	string(control.StateStarting): "33", string(control.StateResetting): "33", string(control.StateDisposing): "33",
	string(control.StateFailed): "31",
	"healthy":                   "32", "unavailable": "31",
}

// styleStates colours the words of one column, where colour is wanted. The
// words say it as well: colour is never alone.
func (f *Factory) styleStates(column int) func(int, string) string {
	if !f.Streams.Color {
		return nil
	}
	return func(i int, cell string) string {
		if colour := colours[cell]; i == column && colour != "" {
			return "\x1b[" + colour + "m" + cell + "\x1b[0m"
		}
		return cell
	}
}
