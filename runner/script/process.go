// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
)

// process is a child as its parent sees it. One call uses it at a time.
type process struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
	// pipe is the file below out.
	pipe *os.File
	// digest names the sources that the child has.
	digest string
	// used is false until the child has executed a call.
	used bool

	killed sync.Once
}

// startProcess starts a child without environment and without descriptors but its two pipes and /dev/null.
func startProcess(command []string) (*process, error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("opening a pipe: %w", err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		closeFiles(stdin, in)
		return nil, fmt.Errorf("opening a pipe: %w", err)
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // The command is this program's. The pool kills the child.
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdin, cmd.Stdout = stdin, stdout
	isolate(cmd)
	err = cmd.Start()
	closeFiles(stdin, stdout)
	if err != nil {
		closeFiles(in, out)
		return nil, fmt.Errorf("starting the process of a script: %w", err)
	}
	return &process{cmd: cmd, in: in, out: bufio.NewReader(out), pipe: out}, nil
}

// load sends the sources of a bundle unless the child has them.
func (p *process) loadSources(call *Call) error {
	if p.digest == call.Digest && p.used {
		return nil
	}
	if err := writeMessage(p.in, toChild{Load: &loadMessage{call.Digest}}); err != nil {
		return err
	}
	sources := call.Sources()
	for _, path := range slices.Sorted(maps.Keys(sources)) {
		if err := writeMessage(p.in, toChild{File: &fileMessage{path, []byte(sources[path])}}); err != nil {
			return err
		}
	}
	p.digest, p.used = call.Digest, true
	return nil
}

// receive returns the next message of the child.
func (p *process) receive() (*fromChild, error) {
	frame, err := readFrame(p.out)
	if err != nil {
		return nil, err
	}
	return decodeMessage[fromChild](frame)
}

// kill ends the child. It does not wait for it, and can be called at any time.
func (p *process) killChild() { p.killed.Do(func() { _ = p.cmd.Process.Kill() }) }

// release ends the child and frees what it used.
func (p *process) release() {
	p.killChild()
	closeFiles(p.in)
	_ = p.cmd.Wait() // It was killed.
	closeFiles(p.pipe)
}

// closeFiles closes pipes. Nothing is lost if that fails.
func closeFiles(files ...*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}
