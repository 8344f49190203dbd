package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// sift gives what passes and what is answered of an input.
func sift(in io.Reader, limit int) (passed, answered string, err error) {
	var answers bytes.Buffer
	b, err := io.ReadAll(newLines(in, &answers, limit, slog.New(slog.DiscardHandler)))
	return string(b), answers.String(), err
}

func TestWhatIsNoMessageIsAnsweredAndTheNextMessagePasses(t *testing.T) {
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for _, r := range []struct {
		name, line string
		want       string // what the answer begins with; empty when the line passes
	}{
		{"a request", ping, ""},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{}}`, ""},
		{"white space around", " \t" + ping + " \t\r", ""},
		{"text", "hello", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error: invalid character 'h' looking for beginning of value"}}`},
		{"half a message", ping[:20], `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"two messages", ping + ping, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"a message and more", ping + " x", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"zero bytes", "\x00\x00", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"a byte order mark", "\ufeff" + ping, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"a number", "42", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"null", "null", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"no version", `{"id":"a","method":"ping"}`, `{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"invalid request: invalid message version tag \"\"`},
		{"another version", `{"jsonrpc":"1.0","id":-7,"method":"ping"}`, `{"jsonrpc":"2.0","id":-7,"error":{"code":-32600,`},
		{"an id that is none", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"the largest id that is a number", `{"jsonrpc":"2.0","id":-9007199254740991,"method":"ping"}`, ""},
		{"an id that would come back as another", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, `{"jsonrpc":"2.0","id":9007199254740993,"error":{"code":-32600,"message":"invalid request: a number that is an id is from `},
		{"an id without end", `{"jsonrpc":"2.0","id":-1e300,"method":"ping"}`, `{"jsonrpc":"2.0","id":-1e300,"error":{"code":-32600,`},
		{"a response with such an id, which is nobody's", `{"jsonrpc":"2.0","id":9007199254740993,"result":{}}`, ""},
		{"a method that is none", `{"jsonrpc":"2.0","id":3,"method":7}`, `{"jsonrpc":"2.0","id":3,"error":{"code":-32600,`},
		{"a response without a version, whose id is the server's", `{"id":1,"result":{}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"neither request nor response", `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: invalid request"`},
		{"a batch", "[" + ping + "]", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: batches are not part of the protocol`},
		{"an empty batch", "[]", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: batches`},
		{"too deep", `{"jsonrpc":"2.0","id":4,"method":"ping","params":` + deep + `}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32600,`},
	} {
		t.Run(r.name, func(t *testing.T) {
			want := ping + "\n"
			if r.want == "" {
				want = strings.Trim(r.line, space) + "\n" + want
			}
			for _, end := range []string{"\n", "\r\n", "\n\n \n"} {
				passed, answered, err := sift(iotest.OneByteReader(strings.NewReader(r.line+end+ping)), 8<<10)
				if passed != want || err != nil {
					t.Errorf("passed %q, %v, want %q", passed, err, want)
				}
				if !strings.HasPrefix(answered, r.want) || strings.Count(answered, "\n") != min(len(r.want), 1) || len(answered) > 2*maxReason {
					t.Errorf("answered %q, want %q", answered, r.want)
				}
			}
		})
	}
}

func TestAClientThatWritesNoiseDoesNotFillTheLog(t *testing.T) {
	var log, answers bytes.Buffer
	const noise = 1000
	l := newLines(strings.NewReader(strings.Repeat("noise\n", noise)), &answers, 1<<10, slog.New(slog.NewTextHandler(&log, nil)))
	if _, err := io.Copy(io.Discard, l); err != nil {
		t.Fatal(err)
	}
	if answered := strings.Count(answers.String(), "\n"); answered != noise {
		t.Errorf("%d answers", answered)
	}
	if logged := strings.Count(log.String(), "level=WARN"); logged != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("logged %d of them: %.500s", logged, &log)
	}
}

func TestALineThatIsTooLongIsSkippedAndAnsweredOnce(t *testing.T) {
	const limit = 100 << 10
	head, tail := `{"jsonrpc":"2.0","id":1,"method":"`, `"}`
	for _, r := range []struct {
		length int
		want   string
	}{
		{limit, ""}, {limit + 1, "-32600"}, {limit + 70<<10, "-32600"}, {10 * limit, "-32600"},
	} {
		line := head + strings.Repeat("x", r.length-len(head)-len(tail)) + tail
		want := ping + "\n"
		if r.want == "" {
			want = line + "\n" + want
		}
		passed, answered, err := sift(strings.NewReader(line+"\r\n"+ping+"\n"), limit)
		if passed != want || err != nil {
			t.Errorf("%d bytes: passed %d bytes, %v", r.length, len(passed), err)
		}
		if !strings.Contains(answered, r.want) || strings.Count(answered, "\n") != min(len(r.want), 1) {
			t.Errorf("%d bytes: answered %q", r.length, answered)
		}
	}
}

func TestAClientHearsOfALineThatIsTooLongBeforeItsEnd(t *testing.T) {
	in, to := io.Pipe()
	from, answers := io.Pipe()
	l := newLines(in, answers, 1<<10, slog.New(slog.DiscardHandler))
	go func() { _, _ = io.Copy(io.Discard, l) }()
	defer func() { _, _ = to.Close(), from.Close() }()
	go func() { _, _ = to.Write(bytes.Repeat([]byte("x"), 256<<10)) }() // and no end
	answer := make([]byte, 1<<10)
	n, err := from.Read(answer)
	if err != nil || !bytes.Contains(answer[:n], []byte("a message may have 1024 bytes")) {
		t.Errorf("heard %q, %v", answer[:n], err)
	}
}

func TestTheEndOfALinesInputIsToldAsItIs(t *testing.T) {
	broken := errors.New("broken")
	for _, line := range []string{"", ping, ping + "\n", "x"} {
		_, _, err := sift(io.MultiReader(strings.NewReader(line), iotest.ErrReader(broken)), 1<<10)
		if !errors.Is(err, broken) {
			t.Errorf("after %q: %v", line, err)
		}
	}
	l := newLines(strings.NewReader("x\n"), brokenWriter{broken}, 1<<10, slog.New(slog.DiscardHandler))
	if _, err := io.ReadAll(l); !errors.Is(err, broken) {
		t.Errorf("a client that hears nothing: %v", err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// What passes is a message that the SDK takes, on one line and within the bound;
// each other line that is not empty has one answer.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		ping, ping + "\n" + ping, "x\n" + ping + "\n", "[]\n[" + ping + "]", "\r\n \n\t", `{"id":"\u0000","method":1}`, `{"jsonrpc":"2.0","id":1.5,"method":"` + "\u2028" + `"}`,
		strings.Repeat("x", 300) + "\n" + ping, `{"id":1,"id":"x","method":[]}`, "\x00\xff", `{"jsonrpc":"2.0","method":null}`,
	} {
		f.Add([]byte(seed))
	}
	const limit = 200
	f.Fuzz(func(t *testing.T, input []byte) {
		passed, answered, err := sift(bytes.NewReader(input), limit)
		if err != nil {
			t.Fatal(err)
		}
		good := lineCount(passed)
		for line := range strings.Lines(passed) {
			if _, err := jsonrpc.DecodeMessage([]byte(line)); err != nil || !json.Valid([]byte(line)) || len(line) > limit+1 {
				t.Errorf("%q passes: %v", line, err)
			}
		}
		for line := range strings.Lines(answered) {
			var answer struct {
				Version string          `json:"jsonrpc"`
				ID      json.RawMessage `json:"id"`
				Error   jsonrpc.Error   `json:"error"`
			}
			if err := json.Unmarshal([]byte(line), &answer); err != nil || answer.Version != "2.0" || answer.ID == nil ||
				answer.Error.Code != jsonrpc.CodeParseError && answer.Error.Code != jsonrpc.CodeInvalidRequest {
				t.Errorf("%q is answered: %v", line, err)
			}
		}
		asked := 0
		for line := range bytes.Lines(input) {
			if len(bytes.Trim(line, space)) > 0 {
				asked++
			}
		}
		if got := good + lineCount(answered); got != asked {
			t.Errorf("%d lines have %d messages and answers", asked, got)
		}
	})
}

func lineCount(s string) int { return strings.Count(s, "\n") }
