// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/skeema/knownhosts"
)

// parseKnownHosts writes a file, because the library reads only files.
func parseKnownHosts(text string) (*knownhosts.HostKeyDB, error) {
	if err := checkPatterns(text); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "known_hosts")
	if err != nil {
		return nil, fmt.Errorf("writing known_hosts: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("writing known_hosts: %w", err)
	}
	db, err := knownhosts.NewDB(file.Name())
	if err != nil {
		return nil, Remedy("known_hosts of the git Secret cannot be read; use the output of ssh-keyscan")
	}
	return db, nil
}

// checkPatterns rejects patterns for which the library needs exponential time, because it
// backtracks at each "*".
func checkPatterns(text string) error {
	for line := range strings.Lines(text) {
		words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
		if len(words) == 0 || strings.HasPrefix(strings.TrimSpace(line), "#") { // # begins a comment only here
			continue
		}
		if len(words) > 1 && strings.HasPrefix(words[0], "@") { // @cert-authority, @revoked
			words = words[1:]
		}
		for pattern := range strings.SplitSeq(words[0], ",") {
			if strings.Count(pattern, "*") > 1 {
				return Remedy("known_hosts of the git Secret has the pattern %q; a pattern can have one *; write the host name", Clip(pattern, 100))
			}
		}
	}
	return nil
}
