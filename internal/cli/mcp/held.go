package mcp

import (
	"errors"
	"io"
)

// held is an input whose end waits for something. A client that pipes its requests
// in and ends is waited for a moment only; the first use of a program may take
// longer than that, to capture the machine's Python and to boot it.
type held struct {
	io.Reader
	until <-chan struct{}
}

// Read implements io.Reader.
func (h held) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		<-h.until
	}
	return n, err
}
