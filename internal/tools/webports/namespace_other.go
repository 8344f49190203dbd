//go:build !linux

package webports

import "errors"

func inside() bool { return false }

func again() (int, error) { return 0, errors.New("only Linux has them") }
