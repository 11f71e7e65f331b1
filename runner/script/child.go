// SPDX-License-Identifier: Apache-2.0

package script

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"runtime/metrics"
	"strings"

	"go.starlark.net/starlark"

	"github.com/agentplatform/agentplatform/bundle"
)

// child executes scripts, one call at a time, for a parent at the other end of two pipes.
type child struct {
	in  <-chan []byte
	out io.Writer
	// names are the built-ins.
	names starlark.StringDict

	digest  string
	sources map[string][]byte
	// modules are the files that were loaded, by path.
	modules map[string]*module
}

// module is a loaded file. globals is nil while the file is loaded.
type module struct {
	globals starlark.StringDict
	err     error
}

// Serve executes the calls that arrive at in until in ends, and then calls end. It writes results to out. It never returns
// while a script runs: end is called even then, so that a child does not outlive its parent.
func Serve(in io.Reader, out io.Writer, end func()) error {
	names, err := predeclare()
	if err != nil {
		return err
	}
	frames := make(chan []byte)
	go func() {
		for {
			frame, err := readFrame(in)
			if err != nil {
				end()
				close(frames)
				return
			}
			frames <- frame
		}
	}()
	c := &child{in: frames, out: out, names: names}
	for {
		message, err := c.receive()
		if err != nil {
			return noParent(err)
		}
		if err := c.handleMessage(message); err != nil {
			return noParent(err)
		}
	}
}

// errParentGone means that the parent closed its pipe.
var errParentGone = errors.New("the parent is gone")

// noParent returns nil if the parent has ended the child.
func noParent(err error) error {
	if errors.Is(err, errParentGone) {
		return nil
	}
	return err
}

func (c *child) receive() (*toChild, error) {
	frame, ok := <-c.in
	if !ok {
		return nil, errParentGone
	}
	return decodeMessage[toChild](frame)
}

func (c *child) handleMessage(message *toChild) error {
	switch {
	case message.Load != nil:
		c.digest, c.sources, c.modules = message.Load.Digest, map[string][]byte{}, map[string]*module{}
	case message.File != nil:
		c.sources[message.File.Path] = message.File.Text
	case message.Call != nil:
		run := newCall(c, message.Call)
		done, err := run.execute()
		if err != nil {
			return err
		}
		if err := writeMessage(c.out, fromChild{Done: done}); err != nil {
			return err
		}
		trimHeap()
	default:
		return errors.New("the parent sent an unexpected message")
	}
	return nil
}

// maxIdleHeap is the memory that an idle child keeps without returning it to the system.
const maxIdleHeap = 32 << 20

// trimHeap returns the memory of a large script to the system.
func trimHeap() {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	if metrics.Read(sample); sample[0].Value.Uint64() > maxIdleHeap {
		debug.FreeOSMemory()
	}
}

// load returns the global names of a file. A file is executed once, and its values are frozen.
func (c *child) loadFile(path string, limit uint64) (starlark.StringDict, error) {
	if m := c.modules[path]; m != nil {
		if m.globals == nil && m.err == nil {
			return nil, errors.New("the scripts load each other")
		}
		return m.globals, m.err
	}
	source, ok := c.sources[path]
	if !ok {
		return nil, errors.New("the script does not exist")
	}
	m := new(module)
	c.modules[path] = m
	m.globals, m.err = c.execFile(path, source, limit)
	if m.globals == nil && m.err == nil {
		m.globals = starlark.StringDict{}
	}
	return m.globals, m.err
}

func (c *child) execFile(path string, source []byte, limit uint64) (starlark.StringDict, error) {
	thread := &starlark.Thread{Name: path, Load: func(_ *starlark.Thread, target string) (starlark.StringDict, error) {
		return c.loadFile(strings.TrimPrefix(target, "//"), limit)
	}}
	thread.SetMaxExecutionSteps(limit)
	thread.OnMaxSteps = cancelForSteps
	return starlark.ExecFileOptions(bundle.ScriptOptions(), thread, path, source, c.names)
}

// reasonSteps cancels a thread with too many steps.
const reasonSteps = "too many steps"

func cancelForSteps(thread *starlark.Thread) { thread.Cancel(reasonSteps) }

// function returns a function of a file.
func (c *child) function(path, name string, limit uint64) (*starlark.Function, error) {
	globals, err := c.loadFile(path, limit)
	if err != nil {
		return nil, err
	}
	function, ok := globals[name].(*starlark.Function)
	if !ok {
		return nil, fmt.Errorf("the script has no function %s", name)
	}
	return function, nil
}
