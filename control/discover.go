package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/maf-sandbox/maf-sandbox-go/control/internal/rundir"
	"github.com/maf-sandbox/maf-sandbox-go/control/internal/wirejson"
)

// maxParallelHosts bounds how many hosts are asked at one time.
const maxParallelHosts = 64

// Manifests reads the announcements in a discovery folder, in the order of
// their file names. An empty name stands for RuntimeDirectory(). A folder that
// is missing has none; one that is not private is an error that matches
// [ErrUnsafeDirectory]. Announcements that mean nothing are left out, and so
// are those that name no process.
func Manifests(directory string) ([]Manifest, error) {
	if directory == "" {
		directory = RuntimeDirectory()
	}
	dir, err := rundir.Open(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	files, err := dir.Files()
	if err != nil {
		return nil, err
	}
	var manifests []Manifest
	for _, file := range files {
		m, err := parseManifest(file.Data, directory)
		if err != nil || !m.namesProcess() {
			continue
		}
		if isOurs(file.Data) {
			m.Announcement = filepath.Join(directory, file.Name)
		}
		manifests = append(manifests, m)
	}
	return manifests, nil
}

// ErrGone says that a host has ended without withdrawing its announcement, as
// one that was killed. It is not asked: its port may be another user's now.
var ErrGone = errors.New("host is gone")

// errWithdrawn says that an announcement is not there any more, which proves
// nothing about its host: it may have stopped its server alone, or started it
// again, and somebody may have removed the folder from under it.
var errWithdrawn = errors.New("host is not announced any more; look for hosts again")

// checkAlive is an error that matches ErrGone when the host of an announcement
// is proved to have ended, and another one when that cannot be told.
func checkAlive(announcement string) error {
	held, err := isHeld(announcement)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errWithdrawn
	case err != nil:
		return err
	case held:
		return nil
	}
	name := wirejson.Cut(filepath.Base(announcement), maxQuoted)
	return fmt.Errorf("%w; the next host to start in Go clears away what it left as %s", ErrGone, name)
}

func isHeld(announcement string) (bool, error) {
	dir, err := rundir.Open(filepath.Dir(announcement))
	if err != nil {
		return false, err
	}
	defer func() { _ = dir.Close() }()
	return dir.Held(filepath.Base(announcement))
}

// DiscoveredHost is an announced host and how it answered.
type DiscoveredHost struct {
	// Client asks the host.
	Client *Client
	// Err is why it is of no use now, such as a host that is gone; nil when it
	// answered as the one that was announced. It is a [*HostError].
	Err error
}

// Discover reads a discovery folder (see [Manifests]) and asks every host who it
// is, all at once. Hosts that do not answer are among them, with the reason.
func Discover(ctx context.Context, directory string) ([]DiscoveredHost, error) {
	manifests, err := Manifests(directory)
	if err != nil {
		return nil, err
	}
	hosts := make([]DiscoveredHost, 0, len(manifests))
	for _, m := range manifests {
		client, err := NewClient(m)
		if err != nil {
			continue // its endpoint was checked when it was read
		}
		hosts = append(hosts, DiscoveredHost{Client: client})
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, maxParallelHosts)
	for i := range hosts {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			hosts[i].Err = hosts[i].Client.Health(ctx)
		})
	}
	group.Wait()
	return hosts, nil
}

// Unite makes one control of all hosts that answered. Those that did not count
// as hosts of which nothing is known, but for those that are gone ([ErrGone]).
// Hosts come and go: look for them again before each operation.
func Unite(hosts []DiscoveredHost) *Composite {
	var members []Member
	var absent []*HostError
	for _, host := range hosts {
		if host.Err == nil {
			members = append(members, Member{host.Client.manifest.SourceID, host.Client})
			continue
		}
		absent = append(absent, asHostError(host.Client.manifest.SourceID, host.Err))
	}
	return NewComposite(members, absent)
}
