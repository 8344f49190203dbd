package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// space is the white space of JSON, which may stand round a message.
const space = " \t\r\n"

// maxReason bounds what an answer says about a line, in characters: some of it can
// be the line itself.
const maxReason = 200

// lines is the input of a client, a message a line, without what is no message:
// the SDK's transport ends its session at the first of those. Here the client is
// told, and the session goes on. It is for one reader.
type lines struct {
	in *bufio.Reader
	// answers takes the answers to what is no message, each in one Write.
	answers io.Writer
	// max bounds a line in bytes, without white space around it.
	max    int
	logger *slog.Logger
	// told says that the log has one of the lines that are none. A client that writes
	// many may not read what is logged, and a full pipe would keep the session.
	told bool
	// rest is what has not been read yet of the last message.
	rest []byte
	// skipping says that the input is within a line that is too long.
	skipping bool
	// end is how the input has ended.
	end error
}

func newLines(in io.Reader, answers io.Writer, limit int, logger *slog.Logger) *lines {
	return &lines{in: bufio.NewReaderSize(in, 64<<10), answers: answers, max: limit, logger: logger}
}

// Read implements io.Reader. It gives messages only, each as one line, and never
// a part of a second one.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.end != nil {
			return 0, l.end
		}
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next takes a line: it is in rest afterwards, or has been answered. The error is
// that of the answer.
func (l *lines) next() error {
	if l.skipping {
		l.skip()
		return nil
	}
	line := bytes.Trim(l.line(), space)
	switch {
	case l.skipping, len(line) > l.max:
		return l.refuse(jsonrpc.CodeInvalidRequest, nil, fmt.Sprintf("invalid request: a message may have %d bytes, and this line has more", l.max))
	case len(line) == 0:
		return nil
	case !json.Valid(line):
		var ignored json.RawMessage
		return l.refuse(jsonrpc.CodeParseError, nil, fmt.Sprintf("parse error: %.*s", maxReason, json.Unmarshal(line, &ignored)))
	case line[0] == '[':
		// Revision 2025-03-26 alone has them, and 2025-06-18 took them out again.
		return l.refuse(jsonrpc.CodeInvalidRequest, nil, "invalid request: batches are not part of the protocol, send one message a line")
	}
	message, err := jsonrpc.DecodeMessage(line)
	if err == nil {
		err = checkID(message)
	}
	if err != nil {
		return l.refuse(jsonrpc.CodeInvalidRequest, requestID(line), fmt.Sprintf("invalid request: %.*s", maxReason, err))
	}
	l.rest = append(line, '\n')
	return nil
}

// line reads a line, whose end may be part of it. It leaves off in one that is
// too long, so that the client hears of that at once.
func (l *lines) line() (line []byte) {
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		full := errors.Is(err, bufio.ErrBufferFull)
		if full && len(line) <= l.max {
			continue
		}
		l.skipping = full
		if !full {
			l.end = err
		}
		return line
	}
}

// skip takes more of a line that is too long.
func (l *lines) skip() {
	_, err := l.in.ReadSlice('\n')
	if l.skipping = errors.Is(err, bufio.ErrBufferFull); !l.skipping {
		l.end = err
	}
}

// requestID gives the id of what was meant as a request, so that the client need
// not wait for its answer; nil if there is none, or if it was meant as a response,
// whose id is one of the server's.
func requestID(line []byte) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || fields["method"] == nil {
		return nil
	}
	id := fields["id"]
	if len(id) == 0 || len(id) > maxReason || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		return nil
	}
	return id
}

// refuse answers what is no message. Without an id the answer's is null, as
// JSON-RPC has it.
func (l *lines) refuse(code int64, id json.RawMessage, reason string) error {
	level := slog.LevelWarn
	if l.told {
		level = slog.LevelDebug
	}
	l.told = true
	l.logger.Log(context.Background(), level, "a line of the client is no message and was skipped", "code", code)
	answer, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   jsonrpc.Error   `json:"error"`
	}{"2.0", id, jsonrpc.Error{Code: code, Message: reason}})
	if err != nil {
		return fmt.Errorf("encode an error: %w", err)
	}
	_, err = l.answers.Write(append(answer, '\n'))
	return err
}

// errUnread is the end of a message that its reader has not taken in time. To the SDK
// it is an ordinary end: who let go of the message knows why.
var errUnread = fmt.Errorf("the client does not take its answers: %w", io.EOF)

// whole keeps messages of several writers apart, each of which is one Write. Its end
// lets go of writers, whether a message is taken or not: a pipe that nobody reads
// keeps its writer for ever, also when it is closed.
type whole struct {
	w io.Writer
	// turn has one while a message is written.
	turn chan struct{}
	over chan struct{}
	once sync.Once
}

func newWhole(w io.Writer) *whole {
	return &whole{w: w, turn: make(chan struct{}, 1), over: make(chan struct{})}
}

// Write implements io.Writer. After Close the error is errUnread, and then p may still
// be read.
func (w *whole) Write(p []byte) (int, error) {
	select {
	case w.turn <- struct{}{}:
	case <-w.over:
		return 0, errUnread
	}
	var n int
	written := make(chan error, 1)
	go func() {
		var err error
		n, err = w.w.Write(p)
		<-w.turn
		written <- err
	}()
	select {
	case err := <-written:
		return n, err
	case <-w.over:
		return 0, errUnread
	}
}

// Close lets go of all writers. The writer underneath is the caller's: a message on
// its way stays so until that one takes it or fails.
func (w *whole) Close() error {
	w.once.Do(func() { close(w.over) })
	return nil
}
