package mcp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds of a token, in bytes. The lower one keeps away what can be guessed.
const (
	MinToken = 16
	MaxToken = 1024
)

// ReadToken reads a bearer token from a file that its owner alone may read:
// printable ASCII on one line.
func ReadToken(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", name)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s is open to other users (mode %03o): chmod 600 it", name, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxToken+2))
	if err != nil {
		return "", err
	}
	token := strings.TrimRight(string(data), "\r\n")
	if err := checkToken(token); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return token, nil
}

func checkToken(token string) error {
	if len(token) < MinToken || len(token) > MaxToken {
		return fmt.Errorf("want %d to %d characters on one line, such as from: openssl rand -hex 32", MinToken, MaxToken)
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return errors.New("want printable ASCII without spaces")
		}
	}
	return nil
}
