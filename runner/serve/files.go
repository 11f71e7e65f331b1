// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// maxFileBytes limits the attachments in memory for all runs, in bytes. Further runs wait. A model
// request needs several times the size of its files.
const maxFileBytes = 32 << 20

// attachFiles lists the attachments of a claimed run and reserves their memory until release is called.
// It waits for memory as long as the claim lasts.
func (s *Server) attachFiles(c *claim, stop <-chan struct{}) (files dispatchapi.Files, release func(), err error) {
	release = func() {}
	if !c.run.Files {
		return files, release, nil
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, prepareTime, errPrepare)
	defer cancel()
	if files, err = s.opts.Dispatch.Files(ctx, c.run.ID); err != nil {
		return files, release, faultOf(ctx, runerror.InputInvalid, "the run's files could not be listed", err)
	}
	var size int64
	for _, f := range files.Files {
		size += f.Size
	}
	if size > dispatchapi.MaxFiles {
		return files, release, &fault{runerror.InputInvalid, "the run's files exceed the size limit", dispatchapi.ErrRejected}
	}
	waiting, end := context.WithCancelCause(c.ctx)
	defer end(nil)
	go func() {
		select {
		case <-stop:
			end(engine.ErrStopped)
		case <-waiting.Done():
		}
	}()
	if err := s.memory.Acquire(waiting, size); err != nil {
		return files, release, fmt.Errorf("waiting for memory for files: %w", context.Cause(waiting))
	}
	return files, func() { s.memory.Release(size) }, nil
}

// fetchFiles reads the files of a run.
func (s *Server) fetchFiles(ctx context.Context, c *claim, files []dispatchapi.File) (out []engine.File, err error) {
	for number, f := range files {
		data, err := s.opts.Dispatch.File(ctx, c.run.ID, number, f.Size)
		if err != nil {
			return nil, faultOf(ctx, runerror.InputInvalid, "a file of the run could not be read", err)
		}
		out = append(out, engine.File{Name: f.Name, MIMEType: f.MIMEType, Data: data})
	}
	return out, nil
}
