package supervise

import (
	"os"
	"sync"
)

// maxTroubles bounds the messages of kindTrouble that wait to be sent.
const maxTroubles = 64

// parcel is a message to be sent.
type parcel struct {
	message message
	// files go with it and are closed afterwards.
	files []*os.File
	// failed, if set, is called when it could not be sent.
	failed func(error)
}

// outbox sends messages in their order, so that nobody has to wait for a
// receiver that is stopped. What waits is bounded by what was asked for: each
// call and each worker has a few messages in its life.
type outbox struct {
	channel *channel

	mu     sync.Mutex
	queue  []parcel
	closed bool
	filled *sync.Cond
	sent   chan struct{} // closed when all is sent after close
}

func newOutbox(c *channel) *outbox {
	o := &outbox{channel: c, sent: make(chan struct{})}
	o.filled = sync.NewCond(&o.mu)
	go o.run()
	return o
}

// put has a message sent. After close it is dropped.
func (o *outbox) put(p parcel) {
	o.mu.Lock()
	drop := o.closed || p.message.Kind == kindTrouble && len(o.queue) >= maxTroubles
	if !drop {
		o.queue = append(o.queue, p)
	}
	o.mu.Unlock()
	o.filled.Signal()
	if drop {
		closeAll(p.files)
	}
}

// close has what waits sent, and waits for it. It may be called again.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.filled.Signal()
	<-o.sent
}

func (o *outbox) run() {
	defer close(o.sent)
	for {
		o.mu.Lock()
		for len(o.queue) == 0 && !o.closed {
			o.filled.Wait()
		}
		if len(o.queue) == 0 {
			o.mu.Unlock()
			return
		}
		p := o.queue[0]
		o.queue = o.queue[1:]
		o.mu.Unlock()
		err := o.channel.send(p.message, p.files...)
		closeAll(p.files)
		if err != nil && p.failed != nil {
			p.failed(err)
		}
	}
}
