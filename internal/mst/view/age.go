package view

import (
	"fmt"
	"time"
)

// Age is a time span in its largest whole unit: 59s, 3m, 5h, 12d.
func Age(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Moment is a moment with its age, in the time zone of now.
func Moment(t, now time.Time) string {
	return t.In(now.Location()).Format("2006-01-02 15:04:05 MST") + " (" + Age(now.Sub(t)) + " ago)"
}
