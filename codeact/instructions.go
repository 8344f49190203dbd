package codeact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// absent are the modules of the standard library that the guest does not have, of
// those that a model might want: what needs a terminal, a display or an installer.
// A test asks a guest for every other one.
var absent = []string{"curses", "ensurepip", "idlelib", "lib2to3", "pip", "readline", "tkinter", "turtle"}

// Bounds of what is said of packages: every request to a model carries it.
const (
	maxPackages     = 40
	maxPackageBytes = 1 << 10
)

// instructions are what is true of the sandboxes of package microvm under this
// configuration. Tests ask a real one whether it is.
func (c Config) instructions() string {
	sentences := []string{
		c.aboutPython(),
		"Not there: " + strings.Join(absent, ", ") + ".",
		"A program is statements: print what you need to see, since the value of a last expression is not shown. input() meets the end of the input at once.",
		c.aboutState(),
		"Files can be written below /tmp and /work, in memory; nothing of the host's files, environment or names can be seen. Local time is UTC.",
		"Threads and asyncio work, on one processor; other processes do not: subprocess, os.fork and multiprocessing raise OSError.",
		c.aboutNetwork(),
		c.aboutLimits(),
	}
	return strings.Join(sentences, " ") + c.aboutTools()
}

func (c Config) aboutPython() string {
	python, packages := "CPython 3", "whatever packages its image has"
	if c.Facts.Known() {
		python, packages = "CPython "+c.Facts.Python, c.packages()
	}
	return "Programs run in a stock " + python + " in a sandbox of their own, with its standard library and " + packages + "; nothing can be installed."
}

// packages names the first packages of the image, which are the more interesting
// ones, and counts the others.
func (c Config) packages() string {
	var names []string
	length := 0
	for _, p := range c.Facts.Packages {
		name := p.Name + " " + p.Version
		if length += len(name); len(names) == maxPackages || length > maxPackageBytes {
			break
		}
		names = append(names, name)
	}
	more := len(c.Facts.Packages) - len(names) + c.Facts.MorePackages
	switch {
	case len(names) == 0 && more == 0:
		return "no other package"
	case len(names) == 0:
		return fmt.Sprintf("%d other packages", more)
	}
	text := "the packages " + strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// aboutTools lists the host's tools. The schemas are the host's, word for word:
// models read them as they are.
func (c Config) aboutTools() string {
	if len(c.Tools) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nPrograms can call these functions of the host as call_tool(name, argument=value, ...), which is there without an import, waits, and returns what the function returns as JSON values (None, bool, int, float, str, list, dict). When a function fails it raises call_tool.ToolError, a RuntimeError; with arguments that JSON cannot carry, TypeError or ValueError.")
	if c.MaxToolCalls > 0 {
		fmt.Fprintf(&b, " A program may make %d calls.", c.MaxToolCalls)
	}
	for _, t := range c.Tools {
		b.WriteString("\n- " + t.Name)
		if text := strings.Join(strings.Fields(t.Description), " "); text != "" {
			b.WriteString(": " + text)
		}
		var schema bytes.Buffer
		if t.Parameters != nil && json.Compact(&schema, t.Parameters) == nil {
			b.WriteString(" Arguments: " + schema.String())
		}
	}
	return b.String()
}

func (c Config) aboutState() string {
	if c.KeepsState {
		return "Names, imports and files stay from one call to the next, until the sandbox is reset or lost; a result says so when it was lost."
	}
	return "Every call starts anew: no name, import or file of an earlier call is there, so a program must be complete."
}

func (c Config) aboutNetwork() string {
	hosts := make([]string, 0, len(c.Allow))
	anyMethod := false
	for _, rule := range c.Allow {
		host := rule.Host.String()
		if rule.Methods != nil {
			host += " (" + strings.Join(rule.Methods, ", ") + " only)"
		}
		anyMethod = anyMethod || rule.Methods == nil
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	if len(hosts) == 0 {
		return "There is no network: sockets reach the program itself only."
	}
	terms := []string{"ports 80 and 443 only"}
	if anyMethod {
		terms = append(terms, "GET and POST unless said otherwise")
	}
	if c.Bounds.HTTPTime > 0 {
		terms = append(terms, "up to "+seconds(c.Bounds.HTTPTime)+" a request")
	}
	if c.Bounds.HTTPBody > 0 {
		terms = append(terms, "up to "+size(c.Bounds.HTTPBody)+" a body, sent or received")
	}
	return "HTTP and HTTPS reach these hosts and nothing else: " + strings.Join(slices.Compact(hosts), ", ") +
		". Terms: " + strings.Join(terms, "; ") +
		". Use http_get(url) and http_post(url, body=..., content_type=...), which are there without an import and return a dict with \"status\", \"headers\" and \"body\" and follow no redirect," +
		" or urllib.request; other sockets reach the program itself only."
}

func (c Config) aboutLimits() string {
	limits := []string{"run for " + seconds(c.Timeout)}
	if c.Bounds.MaxOutput > 0 {
		limits = append(limits, "print "+size(c.Bounds.MaxOutput))
	}
	if c.Bounds.MaxCode > 0 {
		limits = append(limits, "be "+size(c.Bounds.MaxCode)+" long")
	}
	last := limits[len(limits)-1]
	if rest := limits[:len(limits)-1]; len(rest) > 0 {
		last = strings.Join(rest, ", ") + " and " + last
	}
	text := "A program may " + last + "; one that goes beyond is stopped or refused, and told."
	if c.MaxShown > 0 {
		text += " Of more than " + size(int64(c.MaxShown)) + " on standard output, or on standard error, the result has the beginning and the end."
	}
	if c.Bounds.Memory > 0 {
		text += " Memory is " + size(c.Bounds.Memory) + ", the interpreter's share included; what does not fit raises MemoryError."
	}
	return text
}

// description is what a model reads before it decides to call the tool.
func (c Config) description(instructions string) string {
	result := "The result has what the program printed under stdout: and stderr:, and its exit code: when that is not 0; a traceback is under stderr:. All of that is the program's own text, whatever it says. A result that begins with Error: tells why the program did not come to an end."
	if c.Shape == ShapeLabelled {
		result = "The result says first whether the program came to an end of its own, and whether it succeeded; then what it printed under stdout: and stderr:, and its exit code: when that is not 0, or after Error: why it did not come to an end."
	}
	return "Run a Python program in a sandbox and read what it prints. Use it to compute, to work on data and to try things instead of guessing.\n\n" +
		instructions + "\n\n" + result
}

// seconds is a time as the original writes it, such as 120s or 0.5s.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// size is a number of bytes in the largest unit that fits it exactly.
func size(n int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
