package router

import "fmt"

// Held says what the router still keeps of calls and disposals in progress;
// empty when nothing.
func (r *Router) Held() string {
	r.admission.mu.Lock()
	defer r.admission.mu.Unlock()
	slots := len(r.admission.slots)
	r.acquires.mu.Lock()
	defer r.acquires.mu.Unlock()
	acquires := len(r.acquires.all)
	r.disposals.mu.Lock()
	defer r.disposals.mu.Unlock()
	if disposals := len(r.disposals.all); slots+acquires+disposals > 0 {
		return fmt.Sprintf("%d places of calls, %d turns of acquires, %d turns of disposals", slots, acquires, disposals)
	}
	return ""
}

// HeldGenerations counts what the call has to clean when it ends.
func (c *Call) HeldGenerations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}

// Known counts the sandboxes that the router knows.
func (r *Router) Known() int {
	r.known.mu.Lock()
	defer r.known.mu.Unlock()
	n := 0
	for _, of := range r.known.all {
		n += len(of)
	}
	return n
}
