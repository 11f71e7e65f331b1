// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// Parent and child exchange JSON over two pipes. Each message has its length before it, in four bytes, the most
// significant one first.

// maxMessage limits a message in bytes: a value of MaxInput, the context of a run, and the rest of the message.
const maxMessage = MaxInput + 256<<10

// maxFirstRead limits the memory that a length alone makes a reader allocate.
const maxFirstRead = 64 << 10

// toChild is a message of the parent. One field is set.
type toChild struct {
	Load   *loadMessage   `json:"load,omitempty"`
	File   *fileMessage   `json:"file,omitempty"`
	Call   *callMessage   `json:"call,omitempty"`
	Answer *answerMessage `json:"answer,omitempty"`
}

// loadMessage announces new sources, which replace the child's sources. Each file follows in a message of its own.
type loadMessage struct {
	Digest string `json:"digest"`
}

type fileMessage struct {
	Path string `json:"path"`
	// Text is base64 in JSON, so that its size is bounded whatever it contains.
	Text []byte `json:"text"`
}

type callMessage struct {
	File         string             `json:"file"`
	Function     string             `json:"function"`
	Args         json.RawMessage    `json:"args,omitempty"`
	Context      json.RawMessage    `json:"context,omitempty"`
	ReadOnly     json.RawMessage    `json:"read_only,omitempty"`
	TakesContext bool               `json:"takes_context,omitempty"`
	Payload      bool               `json:"payload,omitempty"`
	Files        int                `json:"files,omitempty"`
	Owner        bundle.ScriptOwner `json:"owner"`
	Limits       Limits             `json:"limits"`
	Logs         LogBudget          `json:"logs"`
	// Offers are the built-ins with effects that the script may call. The parent rejects requests of others.
	Offers []string  `json:"offers,omitempty"`
	Now    time.Time `json:"now"`
	Seed   []byte    `json:"seed"`
}

// answerMessage is the answer to a request. Failure is the error that the script sees, Limit the error of a limit. With
// Abandon the child ends the script, because the parent no longer needs it.
type answerMessage struct {
	Value   json.RawMessage `json:"value,omitempty"`
	Failure string          `json:"failure,omitempty"`
	Limit   string          `json:"limit,omitempty"`
	Abandon bool            `json:"abandon,omitempty"`
}

// fromChild is a message of the child. One field is set.
type fromChild struct {
	Request *requestMessage `json:"request,omitempty"`
	Log     *LogLine        `json:"log,omitempty"`
	Done    *doneMessage    `json:"done,omitempty"`
	// Unconfined is why the child could not confine its process. It executes no scripts.
	Unconfined string `json:"unconfined,omitempty"`
}

type requestMessage struct {
	Name     string          `json:"name"`
	Args     json.RawMessage `json:"args"`
	Position bundle.Position `json:"position"`
}

type doneMessage struct {
	Value       json.RawMessage `json:"value,omitempty"`
	Context     json.RawMessage `json:"context,omitempty"`
	Stop        *Stop           `json:"stop,omitempty"`
	Abort       json.RawMessage `json:"abort,omitempty"`
	Error       *Error          `json:"error,omitempty"`
	DroppedLogs int             `json:"dropped_logs,omitempty"`
	Steps       uint64          `json:"steps"`
}

// errUnsent is the error of a message that was not written.
var errUnsent = errors.New("encoding a message")

// writeMessage writes a message with one write.
func writeMessage(w io.Writer, message any) error {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // A value keeps its size, which has been checked.
	if err := encoder.Encode(message); err != nil {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	text := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(text) > maxMessage {
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", errUnsent, len(text), maxMessage)
	}
	framed := make([]byte, 4, 4+len(text))
	binary.BigEndian.PutUint32(framed, uint32(len(text))) //nolint:gosec // It is at most maxMessage.
	_, err := w.Write(append(framed, text...))
	return err
}

// readFrame reads the text of a message. The error is io.EOF at the end of the stream.
func readFrame(r io.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > maxMessage {
		return nil, fmt.Errorf("a message has %d bytes, at most %d are allowed", size, maxMessage)
	}
	text := make([]byte, min(size, maxFirstRead))
	for done := 0; ; {
		n, err := io.ReadFull(r, text[done:])
		if err != nil {
			return nil, fmt.Errorf("reading a message: %w", noEOF(err))
		}
		if done += n; done == int(size) {
			return text, nil
		}
		text = append(text, make([]byte, min(int(size)-done, done))...)
	}
}

// noEOF replaces io.EOF, which would mean that the stream ended between messages.
func noEOF(err error) error {
	if err == io.EOF { //nolint:errorlint // io.ReadFull returns it unwrapped.
		return io.ErrUnexpectedEOF
	}
	return err
}

// decodeMessage decodes the text of a message.
func decodeMessage[T any](frame []byte) (*T, error) {
	message := new(T)
	if err := exactjson.Decode(frame, message); err != nil {
		return nil, fmt.Errorf("decoding a message: %w", err)
	}
	return message, nil
}
