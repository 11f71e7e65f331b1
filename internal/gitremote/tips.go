// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// Tips implements Session.
func (s *sshSession) Tips(_ context.Context, names []string, answered func()) (*packp.AdvRefs, error) {
	s.stdout.Allow(MaxRefs, errRefs)
	tips, err := scanTips(s.stdout, names, answered)
	if over := s.stdout.Exceeded(); over != nil {
		return nil, over
	}
	if err == nil || errors.Is(err, errTips) || errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return tips, err
	}
	return nil, s.sessionError(err)
}

// Tips implements Session.
func (s *httpSession) Tips(ctx context.Context, names []string, answered func()) (*packp.AdvRefs, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/info/refs?service="+transport.UploadPackServiceName, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("requesting branches: %w", err)
	}
	req.Header.Set("User-Agent", capability.DefaultAgent())
	if s.auth != nil {
		s.auth.SetAuth(req)
	}
	s.wire.body.Allow(MaxRefs, errRefs)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body := resp.Body
	resp.Body = http.NoBody // an error would keep all of it
	if err := githttp.NewErr(resp); err != nil {
		return nil, err
	}
	tips, err := scanTips(body, names, answered)
	if err = s.wire.understood(err); err != nil {
		return nil, err
	}
	return tips, nil
}

// scanTips reads a list of branches and tags line by line. It keeps only the lines that Resolve
// needs for the names, and the capabilities that Trees needs.
func scanTips(r io.Reader, names []string, answered func()) (*packp.AdvRefs, error) {
	lines := &tipLines{scanner: pktline.NewScanner(r)}
	line, err := lines.nextLine()
	answered()
	if err == nil && bytes.HasPrefix(line, []byte("# service=")) { // over HTTP
		if line, err = lines.nextLine(); err == nil && len(line) == 0 {
			line, err = lines.nextLine()
		}
	}
	if err != nil {
		return nil, err
	}
	if len(line) == 0 {
		return nil, transport.ErrEmptyRemoteRepository
	}
	line, offered, _ := bytes.Cut(line, []byte{0})
	tips := packp.NewAdvRefs()
	if err := addCapabilities(tips.Capabilities, string(offered)); err != nil {
		return nil, err
	}
	wanted := wantedTips(names, tips.Capabilities)
	for ; len(line) > 0 && err == nil; line, err = lines.nextLine() {
		if keepErr := keepTip(tips, wanted, string(line)); keepErr != nil {
			return nil, keepErr
		}
	}
	return tips, err
}

// tipLines are the lines of a list. An empty line ends it.
type tipLines struct{ scanner *pktline.Scanner }

// nextLine returns the next line. It is valid until the next call.
func (l *tipLines) nextLine() ([]byte, error) {
	if l.scanner.Scan() {
		return bytes.TrimSuffix(l.scanner.Bytes(), []byte("\n")), nil
	}
	switch err := l.scanner.Err(); {
	case err == nil:
		return nil, io.ErrUnexpectedEOF
	case errors.Is(err, pktline.ErrInvalidPktLen):
		return nil, errTips
	default:
		return nil, fmt.Errorf("reading the list of branches and tags: %w", err)
	}
}

// addCapabilities adds the server's capabilities that are used.
func addCapabilities(list *capability.List, offered string) error {
	for word := range strings.FieldsSeq(offered) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch c := capability.Capability(name); c {
		case capability.Sideband64k, capability.Sideband, capability.OFSDelta, capability.Shallow, capability.Filter:
			err = list.Set(c)
		case capability.SymRef:
			if strings.HasPrefix(value, "HEAD:") && !list.Supports(c) {
				err = list.Set(c, value)
			}
		case "object-format":
			if value != "sha1" {
				return Remedy("the repository uses the object format %q, only sha1 is supported; use a repository with that format", Clip(value, 20))
			}
		}
		if err != nil {
			return errTips
		}
	}
	return nil
}

// wantedTips returns the full names that Resolve checks for names.
func wantedTips(names []string, offered *capability.List) map[string]bool {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted["refs/heads/"+name], wanted["refs/tags/"+name] = true, true
	}
	for _, head := range offered.Get(capability.SymRef) {
		wanted[strings.TrimPrefix(head, "HEAD:")] = true
	}
	return wanted
}

// keepTip keeps a wanted line and rejects an invalid one.
func keepTip(tips *packp.AdvRefs, wanted map[string]bool, line string) error {
	if strings.HasPrefix(line, "shallow ") {
		return nil
	}
	digits, name, _ := strings.Cut(line, " ")
	var hash plumbing.Hash
	if len(digits) != hex.EncodedLen(len(hash)) || name == "" {
		return errTips
	}
	if _, err := hex.Decode(hash[:], []byte(digits)); err != nil {
		return errTips
	}
	of, peeled := strings.CutSuffix(name, "^{}")
	switch {
	case hash.IsZero(): // the line "capabilities^{}"
		return transport.ErrEmptyRemoteRepository
	case name == "HEAD":
		tips.Head = &hash
	case peeled && wanted[of]:
		tips.Peeled[of] = hash
	case wanted[name]:
		tips.References[name] = hash
	}
	return nil
}
