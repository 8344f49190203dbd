package microvm

import "log/slog"

// LogAttrs says how a worker ended, without what it wrote to its standard error:
// a program that took it over would have written that.
func (e ended) LogAttrs() []slog.Attr {
	return []slog.Attr{
		slog.Int("worker_exit_code", e.ExitCode), slog.Int("worker_signal", e.Signal), slog.Bool("worker_out_of_memory", e.OutOfMemory),
	}
}
