package command

// mendFolder says how a folder becomes private: a host makes a missing one
// with the right access list.
const mendFolder = "remove it while no host runs, and the next host makes a private one"
