//go:build unix

package command

// mendFolder says how a folder becomes private.
const mendFolder = "'chmod 700' and 'chown' mend a folder of your own"
