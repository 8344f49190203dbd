// Package codeact is the tool with which a model acts by writing programs:
// execute_code, served by sandboxes.
//
//	agent ── Call(ctx, `{"code": "print(6*7)"}`) ── Tool ── router.Router ── sandbox
//
// A [Tool] fits the tool interface of Microsoft Agent Framework for Go, and of
// whatever else calls a tool by Name, Description, Schema and Call, without
// importing any of them. A host that wants a person's word before each call
// wraps it by its framework's own means; [Tools] marks the tool by itself when
// programs can call functions of the host that act for the user
// ([Config.Tools]).
//
// For whom a call is, the host says, by [Config.Caller], which is asked at every
// call: a model has no say in it, since it could then choose another one's
// sandbox.
//
// What comes back is for the model: programs that fail, time that runs out and
// sandboxes that cannot be had are texts, in the words of the Python original,
// and not errors of Go. An error means that nobody waits for the answer any more,
// or that the arguments are none.
package codeact
