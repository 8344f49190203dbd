// Package egress decides whether a guest may make an HTTP request and makes it
// for those that may, from outside the sandbox, which has no network itself.
//
// A request goes one way. A [Policy], made of a spec's rules, judges method and
// URL without asking anybody ([Policy.Decide]). The name is looked up once, and
// every address of the answer is classified ([Classify]) and judged
// ([Policy.Judge]). One of the addresses that passed is dialled, as a number,
// so what was judged is what is reached, whatever the name's server says next.
// The answer goes back as it is: redirects are not followed, no cookie is kept,
// no proxy of the host's environment is used.
//
// A [Broker] does this for one sandbox, within [Limits]. What it takes and
// gives are the bytes that the guest's HTTP modules speak ([Broker.Serve]), so
// that everything foreign is decoded here.
package egress
