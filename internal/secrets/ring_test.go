// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// full is a ring with two keys each, one of them revoked.
func full(t testing.TB) Ring {
	t.Helper()
	ring, err := NewRing()
	require.NoError(t, err)
	for _, name := range []string{Derivation, Sealing} {
		old := ring.IDs(name)
		var id string
		ring, id, err = ring.WithNewKey(name)
		require.NoError(t, err)
		require.Equal(t, append(old, id), ring.IDs(name), "the newest comes last")
	}
	return ring.WithRevoked(ring.IDs(Derivation)[0], time.Hour)
}

func entries(t testing.TB, ring Ring) map[string][]byte {
	t.Helper()
	data, err := ring.Data()
	require.NoError(t, err)
	return data
}

func TestParse_ReadsWrittenRing(t *testing.T) {
	t.Parallel()
	ring := full(t)
	again, err := ParseRing(entries(t, ring))
	require.NoError(t, err)
	require.Equal(t, ring.Fingerprints(), again.Fingerprints())
	require.Len(t, again.Fingerprints(), 4)
	require.Equal(t, ring.IDs(Derivation), again.IDs(Derivation))
	require.Equal(t, ring.IDs(Sealing), again.IDs(Sealing))
	require.Equal(t, map[string]time.Duration{ring.IDs(Derivation)[0]: time.Hour}, again.Revoked())
	for id := range again.Fingerprints() {
		require.NotEmpty(t, RingOf(id), id)
	}
}

func TestParse_RejectsInvalidRingWithoutContent(t *testing.T) {
	t.Parallel()
	good := entries(t, full(t))
	var file derivationFile
	require.NoError(t, json.Unmarshal(good[DerivationEntry], &file))
	key := file.Keys[0]
	swapped := fmt.Sprintf(`{"keys":[{"id":%q,"key":%q}]}`, file.Keys[1].ID, key.Key)
	for name, change := range map[string]map[string]string{
		"nothing at all":         {DerivationEntry: "", SealingEntry: ""},
		"no derivation keys":     {DerivationEntry: ""},
		"an empty ring":          {DerivationEntry: `{"keys":[]}`},
		"no JSON":                {DerivationEntry: "CANARY"},
		"an unknown field":       {DerivationEntry: `{"keys":[],"CANARY":1}`},
		"something after it":     {DerivationEntry: string(good[DerivationEntry]) + "CANARY"},
		"a short key":            {DerivationEntry: `{"keys":[{"id":"derivation-00000000","key":"Q0FOQVJZ"}]}`},
		"the id of another key":  {DerivationEntry: swapped},
		"a key twice":            {DerivationEntry: strings.Replace(string(good[DerivationEntry]), "}]", "},"+entry(t, key)+"]", 1)},
		"no sealing keys":        {SealingEntry: ""},
		"an empty keyset":        {SealingEntry: `{"primaryKeyId":1,"key":[]}`},
		"a keyset of other sort": {SealingEntry: `{"CANARY":1}`},
		"a disabled key":         {SealingEntry: strings.Replace(string(good[SealingEntry]), "ENABLED", "DISABLED", 1)},
		"a key without a prefix": {SealingEntry: strings.Replace(string(good[SealingEntry]), `"TINK"`, `"RAW"`, 1)},
		"no id of a key":         {RevokedEntry: `{"CANARY":{"withinSeconds":1}}`},
		"a period below zero":    {RevokedEntry: `{"derivation-00000000":{"withinSeconds":-1}}`},
		"a period beyond a year": {RevokedEntry: `{"derivation-00000000":{"withinSeconds":31536001}}`},
	} {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(good)
			for entry, text := range change {
				data[entry] = []byte(text)
			}
			_, err := ParseRing(data)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "CANARY")
			require.NotContains(t, err.Error(), "Q0FOQVJZ")
		})
	}
}

func entry(t *testing.T, e derivationEntry) string {
	t.Helper()
	raw, err := json.Marshal(e)
	require.NoError(t, err)
	return string(raw)
}

func TestRing_KeyIDs(t *testing.T) {
	t.Parallel()
	for id, ring := range map[string]string{
		"derivation-0a1b2c3d": Derivation, "sealing-0a1b2c3d": Sealing, "sealing-0A1B2C3D": "", "signing-0a1b2c3d": "",
		"derivation-0a1b2c": "", "derivation": "", "": "", "derivation-0a1b2c3d-0a1b2c3d": "", "sealing-xyzxyzxy": "",
	} {
		t.Run(id, func(t *testing.T) {
			require.Equal(t, ring, RingOf(id))
		})
	}
}

// Any entries give an error, or a ring that is encoded and read again unchanged.
func FuzzParseRing(f *testing.F) {
	good := entries(f, full(f))
	f.Add(good[DerivationEntry], good[SealingEntry], good[RevokedEntry])
	f.Add([]byte(`{"keys":[]}`), []byte(`{}`), []byte(``))
	f.Add([]byte(``), good[SealingEntry], []byte(`{"derivation-00000000":{"withinSeconds":1}}`))
	f.Fuzz(func(t *testing.T, derivation, sealing, revoked []byte) {
		ring, err := ParseRing(map[string][]byte{DerivationEntry: derivation, SealingEntry: sealing, RevokedEntry: revoked})
		if err != nil {
			return
		}
		require.NotEmpty(t, ring.IDs(Derivation))
		require.NotEmpty(t, ring.IDs(Sealing))
		again, err := ParseRing(entries(t, ring))
		require.NoError(t, err)
		require.Equal(t, ring.Fingerprints(), again.Fingerprints())
		require.Equal(t, ring.Revoked(), again.Revoked())
	})
}

func TestRing_WithoutRemovesKey(t *testing.T) {
	t.Parallel()
	ring := full(t)
	for _, name := range []string{Derivation, Sealing} {
		ids := ring.IDs(name)
		less, err := ring.Without(ids[0])
		require.NoError(t, err)
		require.Equal(t, ids[1:], less.IDs(name))
		require.NotContains(t, less.Revoked(), ids[0])
		_, err = less.Without(ids[1])
		require.ErrorContains(t, err, "only key")
		require.Equal(t, ids, ring.IDs(name), "a ring is a value")
	}
}

func TestKeys_UseLatestRing(t *testing.T) {
	t.Parallel()
	var keys Keys
	of := Generated{ProjectID: uuid.New(), ConnectorID: uuid.New(), Version: 1}
	field := Field{ProjectID: of.ProjectID, Kind: "Connector", ObjectID: of.ConnectorID, Name: "credentials"}
	_, err := keys.Secret("derivation-00000000", of)
	require.ErrorIs(t, err, ErrNoKeys)
	_, _, err = keys.Seal(field, nil)
	require.ErrorIs(t, err, ErrNoKeys)

	ring := full(t)
	derivation, sealing := ring.IDs(Derivation), ring.IDs(Sealing)
	require.NoError(t, keys.Set(ring, []string{sealing[0]}))
	first, err := keys.Secret(derivation[0], of)
	require.NoError(t, err)
	second, err := keys.Secret(derivation[1], of)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	var missing *MissingKeyError
	_, err = keys.SigningSecret("derivation-00000000", of)
	require.ErrorAs(t, err, &missing)

	sealed, by, err := keys.Seal(field, []byte("CANARY"))
	require.NoError(t, err)
	require.Equal(t, sealing[0], by)
	require.True(t, keys.SealedNow(sealed))
	require.False(t, keys.SealedNow(sealed[1:]))
	require.False(t, keys.SealedNow(nil))
	require.NoError(t, keys.Set(ring, []string{sealing[1]}))
	require.False(t, keys.SealedNow(sealed), "another key serves now")
	_, err = keys.Open(field, sealed[:len(sealed)-1])
	require.ErrorIs(t, err, ErrUnsealable)
	require.NotErrorAs(t, err, &missing, "the key is there, and it was not sealed with that")
	without, err := ring.Without(sealing[0])
	require.NoError(t, err)
	var lacking Keys
	require.NoError(t, lacking.Set(without, nil))
	_, err = lacking.Open(field, sealed)
	require.ErrorIs(t, err, ErrUnsealable)
	require.ErrorAs(t, err, &missing, "the key may be on its way")
	require.Equal(t, sealing[0], missing.ID)
	opened, err := keys.Open(field, sealed)
	require.NoError(t, err)
	require.Equal(t, "CANARY", string(opened))
	_, by, err = keys.Seal(field, []byte("CANARY"))
	require.NoError(t, err)
	require.Equal(t, sealing[1], by)
}

// register returns the values of a test.
type register struct {
	current []string
	err     error
	held    []map[string]string
}

func (r *register) ReportKeys(_ context.Context, _ string, held map[string]string) ([]string, error) {
	r.held = append(r.held, held)
	return r.current, r.err
}

func (*register) ForgetProcess(context.Context, string) error { return nil }

func TestFollower_WaitsForKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ring := full(t)
	reports := &register{}
	var keys Keys
	pauses := 0
	f := &Follower{
		Read: RingFromFolder(dir), Register: reports, Process: ProcessName("test"), Keys: &keys, Logger: slog.New(slog.DiscardHandler),
		Pause: func(context.Context) error {
			switch pauses++; pauses {
			case 1: // the manager creates them
				require.Empty(t, reports.held, "there is nothing to report")
				for name, content := range entries(t, ring) {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
				}
			case 2: // and they come into use
				reports.current = []string{ring.IDs(Sealing)[1]}
			default:
				return errors.New("waited too long")
			}
			return nil
		},
	}
	require.NoError(t, f.Await(t.Context()))
	require.Equal(t, ring.Fingerprints(), reports.held[0])
	require.Equal(t, ring.IDs(Sealing)[1], keys.SealingKey())
	require.Equal(t, 2, pauses)
}

func TestFollower_KeepsKeysAfterRejectedReport(t *testing.T) {
	t.Parallel()
	ring := full(t)
	refusal := errors.New("a key is missing")
	reports := &register{current: []string{ring.IDs(Sealing)[0]}}
	var keys Keys
	f := &Follower{
		Read:     func(context.Context) (Ring, error) { return ring, nil },
		Register: reports, Keys: &keys, Logger: slog.New(slog.DiscardHandler),
		Pause: func(context.Context) error { return errors.New("it does not wait") },
	}
	require.NoError(t, f.Await(t.Context()))
	reports.err = refusal
	require.ErrorIs(t, f.Refresh(t.Context()), refusal)
	require.Equal(t, ring.IDs(Sealing)[0], keys.SealingKey())
	require.ErrorIs(t, f.Await(t.Context()), refusal)
}
