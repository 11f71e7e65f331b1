// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/agentplatform/agentplatform/internal/egress"
)

// maxEvents limits the events of one answer. Reports of progress do not count, and their bytes do not count against MaxAnswer:
// the time limit of a call bounds them.
const maxEvents = 10_000

// events reads a stream of server-sent events for the SDK. It passes on the answer of one request, which ends the stream,
// and requests of the server. It leaves out the IDs of events, because a stream that was cut is not resumed: the SDK would
// end the session. An invalid or too long event ends the stream with an error, and so only this request.
type events struct {
	body     io.ReadCloser
	asked    head
	exchange *exchange

	lines *bufio.Reader
	count int
	out   bytes.Buffer
	err   error
}

func (e *events) Read(p []byte) (int, error) {
	for e.out.Len() == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.err = e.readEvent()
		if errors.Is(e.err, errEventTooLong) || errors.Is(e.err, egress.ErrTooLarge) {
			e.exchange.tooLarge.Store(true)
		}
	}
	return e.out.Read(p)
}

func (e *events) Close() error { return e.body.Close() }

// readEvent reads one event into out. It returns io.EOF after the answer.
func (e *events) readEvent() error {
	if e.lines == nil {
		e.lines = bufio.NewReader(e.body)
	}
	if e.count++; e.count > maxEvents {
		return errEventTooLong
	}
	var data []byte
	name, size := "", 0
	for {
		line, err := e.readLine(&size)
		if err != nil {
			return err // An event without its empty line is incomplete.
		}
		if len(line) == 0 {
			break
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
	if len(data) == 0 || name != "" && name != "message" {
		return nil
	}
	if e.exchange.progress.addReport(data) {
		e.count--
		egress.RefundBytes(e.body, size)
		return nil
	}
	message, isAnswer, err := takeMessage(data, e.asked, e.exchange)
	if err != nil || message == nil {
		return err
	}
	fmt.Fprintf(&e.out, "data: %s\n\n", message)
	if isAnswer {
		return io.EOF
	}
	return nil
}

// readLine returns a line without its end. size counts the bytes of the event.
func (e *events) readLine(size *int) ([]byte, error) {
	var line []byte
	for {
		part, err := e.lines.ReadSlice('\n')
		if *size += len(part); *size > maxEvent {
			return nil, errEventTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
