//go:build !linux && !darwin

package console

import (
	"context"

	tea "charm.land/bubbletea/v2"
)

// terminal is what other systems need nothing of.
type terminal struct{}

func openTerminal(Config) (*terminal, error) { return nil, nil }

func (*terminal) giveBack() error { return nil }

func (*terminal) suspend(context.Context) tea.Cmd { return tea.Suspend }
