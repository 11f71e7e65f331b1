// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// KeyHolderAge is how long a process counts as alive after it reported its keys.
const KeyHolderAge = time.Minute

// ErrNoCurrentKey says that no key of the ring serves new things yet: not all
// live processes have reported one.
var ErrNoCurrentKey = errors.New("no key of the ring is current yet")

// Derivation is a version of the secret of a connector.
type Derivation struct {
	ConnectorID uuid.UUID
	Version     int64
}

// PlatformKey is what the store knows of a key of the platform; never the key.
type PlatformKey struct {
	// ID is "<ring>-<8 hexadecimal digits>".
	ID string
	// Ring is "derivation" or "sealing".
	Ring string
	// Fingerprint is a digest of the key.
	Fingerprint string
	// Rank orders the keys of a ring by age; a higher one is newer. Set by the store.
	Rank int64
	// Current says that the key serves what is new; at most one of a ring does.
	Current bool
	// Used says that the key is or was current: it cannot be done without.
	Used bool
	// RevokedAt is nil unless the key was revoked, EndsAt when the secrets that
	// derive from it end.
	RevokedAt, EndsAt *time.Time
	// RetiredAt is when a revoked key had nothing left that needs it.
	RetiredAt *time.Time
}

// KeyHolder is a live process and the ids of the keys that it holds.
type KeyHolder struct {
	Process string
	Keys    []string
}

// KeyStatus is a key with who lacks it and what needs it.
type KeyStatus struct {
	PlatformKey
	// Lacking are the live processes that have not reported the key.
	Lacking []string
	// Needed is the number of connectors in effect whose present secret derives
	// from the key, and of those whose credentials it has sealed.
	Needed int64
	// Dispensable: RetireKey gives the key up.
	Dispensable bool
}

// NextKey chooses the current key of a ring among its keys: the newest that is
// not revoked, once all live processes hold it, of which there must be one. It
// returns false when the current one stays.
func NextKey(keys []PlatformKey, live []KeyHolder) (PlatformKey, bool) {
	var newest PlatformKey
	for _, key := range keys {
		if key.RevokedAt == nil && key.RetiredAt == nil && (newest.ID == "" || key.Rank > newest.Rank) {
			newest = key
		}
	}
	if newest.ID == "" || newest.Current || len(live) == 0 {
		return PlatformKey{}, false
	}
	for _, holder := range live {
		if !slices.Contains(holder.Keys, newest.ID) {
			return PlatformKey{}, false
		}
	}
	return newest, true
}

// KeyRegister is where all processes say which keys they hold.
type KeyRegister interface {
	// ReportKeys says that a live process holds these keys, fingerprints by id,
	// and returns the ids of the current ones. *MissingKeysError when one is
	// missing or another of those that are or were current; revoked ones may be.
	ReportKeys(ctx context.Context, process string, held map[string]string) ([]string, error)
	// ForgetProcess says that a process has ended.
	ForgetProcess(ctx context.Context, process string) error
}

// KeyLedger is what the manager needs to keep the platform's keys.
type KeyLedger interface {
	KeyRegister
	// AdmitKeys takes note of the keys in the Secret, whose ids are in the order
	// of their age, and of those that are revoked, with how long the secrets that
	// derive from them stay valid after that. Keys that were never current and
	// are gone are forgotten. *MissingKeysError when a key has another fingerprint.
	AdmitKeys(ctx context.Context, keys []PlatformKey, revoked map[string]time.Duration) error
	// PromoteKeys makes current what NextKey chooses, and returns the ids. Alive
	// is who reported within liveFor, KeyHolderAge in earnest, by the database's clock.
	PromoteKeys(ctx context.Context, liveFor time.Duration) ([]string, error)
	// Keys returns all keys that the store ever knew, the oldest first.
	Keys(ctx context.Context, liveFor time.Duration) ([]KeyStatus, error)
	// DerivationKey returns the id of the key that this version of a connector's
	// secret derives from, also after the connector was deleted and made again:
	// the current one when none is noted or the noted one is revoked, which is
	// then noted. ErrNoCurrentKey when there is none.
	DerivationKey(ctx context.Context, connector Key, version int64) (string, error)
	// DerivationKeys returns what DerivationKey would without noting anything, for
	// connectors of a project and all their versions; what it does not hold is not
	// noted yet, or revoked.
	DerivationKeys(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[Derivation]string, error)
	// DerivedFrom returns up to limit connectors in effect whose present secret
	// derives from the key, after the one given (the zero Key to begin), by project and id.
	DerivedFrom(ctx context.Context, keyID string, after Key, limit int) ([]ProjectedObject, error)
	// SealedBefore returns up to limit sealed fields that another key than this
	// one has sealed, after the connector given, by project and id.
	SealedBefore(ctx context.Context, keyID string, after Key, limit int) ([]SealedField, error)
	// Reseal puts other bytes in the place of a field's, unless it has changed.
	Reseal(ctx context.Context, field SealedField, sealed []byte, keyID string) error
	// RetireKey gives up a revoked key; ErrConflict while something needs it: what
	// it has sealed, and until its end what derives from it and is in effect.
	RetireKey(ctx context.Context, keyID string) error
}

// SealedField is a sealed column of the projection: a connector's credentials.
type SealedField struct {
	Connector Key
	Sealed    []byte
}

// MissingKeysError says that keys which the store's rows need are not there.
type MissingKeysError struct {
	// Missing are ids of keys that are not there, Changed of those that are not
	// the same under their id.
	Missing, Changed []string
}

// Error names the keys and the remedy.
func (e *MissingKeysError) Error() string {
	var problems []string
	if len(e.Missing) > 0 {
		problems = append(problems, "lacks "+strings.Join(e.Missing, ", "))
	}
	if len(e.Changed) > 0 {
		problems = append(problems, "holds another key under the id "+strings.Join(e.Changed, ", "))
	}
	return fmt.Sprintf("the Secret of the platform's keys %s, of which the store holds what they made: restore the Secret from its "+
		"backup; for a key that is lost for good, run: agentctl keys revoke <key id> --lost", strings.Join(problems, " and "))
}
