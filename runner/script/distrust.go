// SPDX-License-Identifier: Apache-2.0

package script

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/bundle"
)

// builtins are the built-ins of scripts by name.
var builtins = func() map[string]*bundle.Builtin {
	byName := map[string]*bundle.Builtin{}
	for _, b := range bundle.Builtins() {
		byName[b.Name] = &b
	}
	return byName
}()

// errTakenOver is the error of a child that sends messages which its interpreter never sends. Then the script has control of the
// process, and the parent ends it.
var errTakenOver = errors.New("the process of the script does what scripts cannot do, and was ended")

// canRequest reports whether the script may send a request: for a built-in that the child was offered, for a signature with a
// sensitive key, or for a part of an attachment. The child checks this too, but it is not trusted.
func (e *execution) canRequest(name string) bool {
	switch name {
	case FileData:
		return e.call.Payload && e.call.Files > 0
	case "hmac.sha256":
		return true
	case "http.request":
		// The host gets the requests of all methods under this name.
		return slices.ContainsFunc(e.offers, func(offered string) bool { return effectOf(offered) == bundle.EffectByMethod })
	}
	return slices.Contains(e.offers, name)
}

// checkDone returns an error if a result exceeds limits that the child has checked, or has parts that the owner cannot have.
func (e *execution) checkDone(done *doneMessage) error {
	stop, abort, limit := builtins["stop"], builtins["abort"], e.call.Limits.ResultBytes
	switch {
	case len(done.Value) > limit, len(done.Abort) > limit, len(done.Context) > maxContext:
		return fmt.Errorf("%w: its result is too large", errTakenOver)
	case done.Stop != nil && (!stop.IsFor(e.call.Owner) || len(done.Stop.Message) > limit), done.Abort != nil && !abort.IsFor(e.call.Owner):
		return fmt.Errorf("%w: it ended the run or the call", errTakenOver)
	case done.Error != nil && (len(done.Error.Code) > maxErrorText || len(done.Error.Message) > maxErrorText || len(done.Error.Cause) > maxErrorText ||
		len(done.Error.Stack) > maxFrames):
		return fmt.Errorf("%w: its error is too large", errTakenOver)
	}
	return nil
}

// keepLine keeps a line of the log within the budget of the run.
func (e *execution) keepLine(line *LogLine) {
	size := len(line.Text) + len(line.Fields)
	if e.call.Logs.Lines < 1 || e.call.Logs.Bytes < size || len(line.Level)+len(line.Position.File) > maxLogLine {
		return
	}
	e.call.Logs.Lines, e.call.Logs.Bytes = e.call.Logs.Lines-1, e.call.Logs.Bytes-size
	e.result.Logs = append(e.result.Logs, *line)
}
