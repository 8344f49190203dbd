package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// Hosts is what the console asks. Its methods are called from several
// goroutines.
type Hosts interface {
	// Announced are the hosts that there are now.
	Announced() ([]control.Manifest, error)
	// Ask asks one host who it is and for its sandboxes.
	Ask(ctx context.Context, manifest control.Manifest) ([]control.Record, error)
	// Dispose disposes of exactly the sandbox with the id.
	Dispose(ctx context.Context, instanceID string, timeout time.Duration) (control.DisposalResult, error)
	// Purge disposes of a conversation's sandboxes on every host. The failures
	// are the hosts that were not there to be asked.
	Purge(ctx context.Context, scope, thread string, timeout time.Duration) (control.PurgeResult, []*control.HostError, error)
}

// Config is what a console needs. Its zero value uses the process's terminal.
type Config struct {
	// Input and Output are the terminal; those of the process when nil.
	Input  io.Reader
	Output io.Writer
	// Environ says what the terminal can do, and whether colour is wanted; that
	// of the process when nil.
	Environ []string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Interval is the time between two looks; zero means DefaultInterval.
	Interval time.Duration
}

// DefaultInterval is the time between two looks at all hosts. The Python
// program's console has the same.
const DefaultInterval = 2 * time.Second

// quitTime is what the terminal has to take the last bytes when the console is
// told to end from outside. A terminal that is gone takes none.
const quitTime = time.Second

// Run shows the console until the operator leaves it or the context ends, and
// leaves the terminal as it was. Work that hosts were asked for and that is
// under way at the end goes on there.
func Run(ctx context.Context, hosts Hosts, config Config) error {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Interval == 0 {
		config.Interval = DefaultInterval
	}
	if config.Environ == nil {
		config.Environ = os.Environ()
	}
	asking, stopAsking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAsking()
	m := newModel(asking, hosts, config.Now, config.Interval)
	options := []tea.ProgramOption{tea.WithoutSignalHandler(), tea.WithEnvironment(config.Environ)}
	if config.Input != nil {
		options = append(options, tea.WithInput(config.Input))
	}
	if config.Output != nil {
		options = append(options, tea.WithOutput(config.Output))
	}
	around, err := openTerminal(config)
	if err != nil {
		return fmt.Errorf("the console: %w", err)
	}
	if around != nil {
		m.suspend = around.suspend(ctx)
	}
	program := tea.NewProgram(m, options...)

	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		program.Quit()
		late := time.NewTimer(quitTime)
		defer late.Stop()
		select {
		case <-over:
		case <-late.C:
			program.Kill()
		}
	}()
	_, err = program.Run()
	close(over)
	<-watched
	if around != nil {
		if back := around.giveBack(); err == nil {
			err = back
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, tea.ErrProgramPanic):
		return fmt.Errorf("the console failed, which is a bug worth reporting: %w", err)
	case err != nil:
		return fmt.Errorf("the console: %w", err)
	}
	return nil
}
