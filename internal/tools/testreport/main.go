// Command testreport reads the output of "go test -json" and prints what a
// reader wants of it: go test's own line for every package, the whole output of
// what failed, and every skipped test with its reason.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// errFailed is returned when a test or a package failed.
var errFailed = errors.New("tests failed")

func main() {
	skips := flag.String("skips", "", "file to which skipped tests are appended")
	flag.Parse()
	if err := run(*skips); err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, "testreport:", err)
		}
		os.Exit(1)
	}
}

func run(skips string) error {
	skipped, err := report(os.Stdin, os.Stdout)
	if skips == "" || len(skipped) == 0 {
		return err
	}
	f, openErr := os.OpenFile(skips, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	_, writeErr := io.WriteString(f, strings.Join(skipped, "\n")+"\n")
	return errors.Join(err, writeErr, f.Close())
}

// event is a line of "go test -json" (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// test names a test, or with an empty name the package itself.
type test struct{ pkg, name string }

// report copies the readable part of the events in r to w. It returns the
// skipped tests as "package.Test: reason" and errFailed if anything failed.
func report(r io.Reader, w io.Writer) ([]string, error) {
	var (
		skipped []string
		failed  error
		// output is what each unfinished test has printed.
		output = make(map[test]*strings.Builder)
		in     = bufio.NewReader(r)
		out    = bufio.NewWriter(w)
	)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				// The go command's own words, or a test that writes to the wrong
				// descriptor.
				_, _ = out.Write(line)
				continue
			}
			t := test{e.Package, e.Test}
			switch e.Action {
			case "output":
				if t.name == "" && isResult(e.Output) {
					_, _ = out.WriteString(e.Output)
					_ = out.Flush()
					break
				}
				if output[t] == nil {
					output[t] = new(strings.Builder)
				}
				output[t].WriteString(e.Output)
			case "build-output":
				_, _ = out.WriteString(e.Output)
			case "build-fail":
				failed = errFailed
			case "pass":
				delete(output, t)
			case "skip":
				if t.name != "" {
					skipped = append(skipped, t.pkg+"."+t.name+": "+reason(output[t]))
				}
				delete(output, t)
			case "fail":
				failed = errFailed
				if output[t] != nil {
					_, _ = out.WriteString(output[t].String())
				}
				delete(output, t)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return skipped, errors.Join(err, out.Flush())
		}
	}
	for t, o := range output {
		// The stream broke off: this test was still running.
		failed = errFailed
		_, _ = fmt.Fprintf(out, "unfinished: %s %s\n%s", t.pkg, t.name, o)
	}
	return skipped, errors.Join(failed, out.Flush())
}

// isResult tells go test's line for a package from what the package prints.
func isResult(line string) bool {
	for _, prefix := range []string{"ok  \t", "?   \t", "FAIL\t"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return strings.HasPrefix(line, "\t") && strings.Contains(line, "coverage: ")
}

// reason takes the words given to t.Skip out of a test's output.
func reason(o *strings.Builder) string {
	if o == nil {
		return "no reason given"
	}
	var words []string
	for line := range strings.Lines(o.String()) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		// Without "file_test.go:12: ".
		if i := strings.Index(line, ".go:"); i >= 0 {
			if _, rest, ok := strings.Cut(line[i+len(".go:"):], ": "); ok {
				line = rest
			}
		}
		words = append(words, line)
	}
	if len(words) == 0 {
		return "no reason given"
	}
	return strings.Join(words, " ")
}
