// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// Keys of the tests.
const (
	derivationOne, derivationTwo = "derivation-00000001", "derivation-00000002"
	sealingOne, sealingTwo       = "sealing-00000001", "sealing-00000002"
)

func platformKey(id string) store.PlatformKey {
	ring := "derivation"
	if id[0] == 's' {
		ring = "sealing"
	}
	return store.PlatformKey{ID: id, Ring: ring, Fingerprint: "fingerprint of " + id}
}

func (w *world) admitKeys(revoked map[string]time.Duration, ids ...string) {
	var keys []store.PlatformKey
	for _, id := range ids {
		keys = append(keys, platformKey(id))
	}
	w.NoError(w.s.AdmitKeys(w.ctx, keys, revoked))
}

// reportKeys reports the keys of a process and returns the current ones.
func (w *world) reportKeys(process string, ids ...string) []string {
	current, err := w.s.ReportKeys(w.ctx, process, fingerprints(ids...))
	w.NoError(err)
	return current
}

func fingerprints(ids ...string) map[string]string {
	held := map[string]string{}
	for _, id := range ids {
		held[id] = platformKey(id).Fingerprint
	}
	return held
}

func (w *world) promote(want ...string) {
	promoted, err := w.s.PromoteKeys(w.ctx, store.KeyHolderAge)
	w.NoError(err)
	w.Equal(want, promoted)
}

// setUpKeys prepares a store whose first keys are current, with one process.
func (w *world) setUpKeys() {
	w.admitKeys(nil, derivationOne, sealingOne)
	w.Empty(w.reportKeys("manager", derivationOne, sealingOne))
	w.promote(derivationOne, sealingOne)
}

func (w *world) keyStatus(id string) store.KeyStatus {
	keys, err := w.s.Keys(w.ctx, store.KeyHolderAge)
	w.NoError(err)
	for _, key := range keys {
		if key.ID == id {
			return key
		}
	}
	w.Fail("no such key", id)
	return store.KeyStatus{}
}

func (w *world) derivationKey(connector uuid.UUID, version int64) string {
	id, err := w.s.DerivationKey(w.ctx, w.key(connector), version)
	w.NoError(err)
	return id
}

// derived projects the connector with a secret that is derived from a key.
func (w *world) derived(digest, keyID string) {
	c := w.connector
	c.SecretGracePeriod = 0
	c.SecretVersion, c.SecretDigest, c.SecretKey, c.SealedKey = 1, []byte(digest), keyID, sealingOne
	w.NoError(w.s.PutConnector(w.ctx, c))
}

func (w *world) acceptedSecrets() map[string]*time.Time {
	route := w.readRoute(w.connector.Key())
	out := map[string]*time.Time{}
	for _, s := range route.Connector.Secrets {
		out[string(s.SHA256)] = s.NotAfter
	}
	return out
}

var keyPromises = []promise{
	{"the first keys become current once a process has them", func(w *world) {
		w.requireNone(w.s.Keys(w.ctx, store.KeyHolderAge))
		w.admitKeys(nil, derivationOne, sealingOne)
		w.promote()
		w.Empty(w.reportKeys("manager", derivationOne, sealingOne))
		w.promote(derivationOne, sealingOne)
		w.Equal([]string{derivationOne, sealingOne}, w.reportKeys("manager", derivationOne, sealingOne))
		w.promote()
	}},
	{"a process that lacks a used key, or has another, is rejected", func(w *world) {
		w.setUpKeys()
		var missing *store.MissingKeysError
		w.ErrorAs(errorOf(w.s.ReportKeys(w.ctx, "facade", fingerprints(derivationOne))), &missing)
		w.Equal([]string{sealingOne}, missing.Missing)
		held := fingerprints(derivationOne, sealingOne)
		held[derivationOne] = "another"
		w.ErrorAs(errorOf(w.s.ReportKeys(w.ctx, "facade", held)), &missing)
		w.Equal([]string{derivationOne}, missing.Changed)
		w.ErrorAs(w.s.AdmitKeys(w.ctx, []store.PlatformKey{{ID: derivationOne, Ring: "derivation", Fingerprint: "another"}}, nil), &missing)
		w.Empty(w.keyStatus(derivationOne).Lacking, "a rejected process delays no other")
	}},
	{"a new key becomes current once all live processes have it", func(w *world) {
		w.setUpKeys()
		w.reportKeys("facade", derivationOne, sealingOne)
		all := []string{derivationOne, sealingOne, derivationTwo, sealingTwo}
		w.admitKeys(nil, all...)
		w.reportKeys("manager", all...)
		w.Equal([]string{"facade"}, w.keyStatus(derivationTwo).Lacking)
		w.promote()
		w.Equal([]string{derivationOne, sealingOne}, w.reportKeys("manager", all...))
		w.reportKeys("facade", all...)
		w.promote(derivationTwo, sealingTwo)
		w.Equal([]string{derivationTwo, sealingTwo}, w.reportKeys("facade", all...))
		w.True(w.keyStatus(derivationOne).Used)
		w.Error(errorOf(w.s.ReportKeys(w.ctx, "facade", fingerprints(derivationTwo, sealingTwo))), "the former keys are used as well")
	}},
	{"an ended or silent process delays no key", func(w *world) {
		w.setUpKeys()
		w.reportKeys("facade", derivationOne, sealingOne)
		w.admitKeys(nil, derivationOne, sealingOne, derivationTwo)
		w.reportKeys("manager", derivationOne, sealingOne, derivationTwo)
		promoted, err := w.s.PromoteKeys(w.ctx, -time.Second)
		w.NoError(err)
		w.Empty(promoted, "but one process must be live")
		keys, err := w.s.Keys(w.ctx, -time.Second)
		w.NoError(err)
		w.Empty(keys[2].Lacking)
		w.promote()
		w.NoError(w.s.ForgetProcess(w.ctx, "facade"))
		w.promote(derivationTwo)
	}},
	{"a missing key that was never current is deleted", func(w *world) {
		w.setUpKeys()
		w.admitKeys(nil, derivationOne, sealingOne, derivationTwo)
		w.admitKeys(nil, sealingOne)
		keys, err := w.s.Keys(w.ctx, store.KeyHolderAge)
		w.NoError(err)
		w.Len(keys, 2)
		w.Equal([]string{derivationOne, sealingOne}, []string{keys[0].ID, keys[1].ID})
	}},
	{"derivation keys are recorded and outlive the connector", func(w *world) {
		w.ErrorIs(errorOf(w.s.DerivationKey(w.ctx, w.connector.Key(), 1)), store.ErrNoCurrentKey)
		w.setUpKeys()
		w.Equal(derivationOne, w.derivationKey(w.connector.ID, 1))
		w.admitKeys(nil, derivationOne, sealingOne, derivationTwo)
		w.reportKeys("manager", derivationOne, sealingOne, derivationTwo)
		w.promote(derivationTwo)
		w.Equal(derivationOne, w.derivationKey(w.connector.ID, 1))
		w.Equal(derivationTwo, w.derivationKey(w.connector.ID, 2), "a version bump")
		w.Equal(derivationTwo, w.derivationKey(uuid.New(), 1), "a new connector")
		other, err := w.s.DerivationKey(w.ctx, store.Key{ProjectID: uuid.New(), ID: w.connector.ID}, 1)
		w.NoError(err)
		w.Equal(derivationTwo, other, "another project's connector of the same id")
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		w.Equal(derivationOne, w.derivationKey(w.connector.ID, 1))
	}},
	{"derivation keys of many connectors are read without recording", func(w *world) {
		w.setUpKeys()
		noted, unknown := uuid.New(), uuid.New()
		w.derivationKey(noted, 1)
		w.derivationKey(noted, 2)
		w.derivationKey(w.connector.ID, 1)
		lookUp := func(ids ...uuid.UUID) map[store.Derivation]string {
			keys, err := w.s.DerivationKeys(w.ctx, w.project.ID, ids)
			w.NoError(err)
			return keys
		}
		want := map[store.Derivation]string{
			{ConnectorID: noted, Version: 1}: derivationOne, {ConnectorID: noted, Version: 2}: derivationOne,
		}
		w.Equal(want, lookUp(noted, unknown))
		w.Equal(want, lookUp(noted, unknown), "the requested version is not recorded")
		w.Empty(lookUp())
		other, err := w.s.DerivationKeys(w.ctx, uuid.New(), []uuid.UUID{noted})
		w.NoError(err)
		w.Empty(other, "another project's connector of the same id")
		w.admitKeys(map[string]time.Duration{derivationOne: time.Hour}, derivationOne, sealingOne, derivationTwo)
		w.Empty(lookUp(noted), "a revoked key no longer serves")
	}},
	{"an expired key, or one without uses in effect, is dispensable", func(w *world) {
		w.setUpKeys()
		w.derived("old", w.derivationKey(w.connector.ID, 1))
		w.admitKeys(map[string]time.Duration{derivationOne: time.Hour}, derivationOne, sealingOne, derivationTwo)
		w.reportKeys("manager", derivationOne, sealingOne, derivationTwo)
		w.promote(derivationTwo)
		w.False(w.keyStatus(derivationOne).Dispensable)
		w.admitKeys(map[string]time.Duration{derivationOne: 0}, derivationOne, sealingOne, derivationTwo)
		w.True(w.keyStatus(derivationOne).Dispensable, "it has ended")
		w.EqualValues(1, w.keyStatus(derivationOne).Needed, "and a connector is to be derived again")

		w.admitKeys(map[string]time.Duration{derivationOne: time.Hour}, derivationOne, sealingOne, derivationTwo)
		w.False(w.keyStatus(derivationOne).Dispensable)
		other := w.newConnector("returns")
		w.NoError(w.s.PutConnector(w.ctx, other))
		renamed := w.connector
		renamed.Name, renamed.Ref.Generation = other.Name, 2
		var duplicate *store.DuplicateError
		w.ErrorAs(w.s.PutConnector(w.ctx, renamed), &duplicate)
		w.True(w.keyStatus(derivationOne).Dispensable)
		w.Zero(w.keyStatus(derivationOne).Needed)
		w.Empty(w.derivedFrom(derivationOne))
		w.NoError(w.s.RetireKey(w.ctx, derivationOne))
	}},
	{"secrets of a revoked key are derived again and expire with it", func(w *world) {
		w.setUpKeys()
		w.derived("old", w.derivationKey(w.connector.ID, 1))
		version := w.version()
		w.admitKeys(map[string]time.Duration{derivationOne: time.Hour}, derivationOne, sealingOne, derivationTwo)
		w.Greater(w.version(), version, "gateways read it again")
		w.NotNil(w.acceptedSecrets()["old"], "it expires although it is the current one")
		w.Equal(derivationOne, w.derivationKey(w.connector.ID, 1), "there is no other one yet")
		w.reportKeys("manager", derivationOne, sealingOne, derivationTwo)
		w.promote(derivationTwo)
		w.Equal(derivationTwo, w.derivationKey(w.connector.ID, 1))
		w.ErrorIs(w.s.RetireKey(w.ctx, derivationOne), store.ErrConflict)
		w.EqualValues(1, w.keyStatus(derivationOne).Needed)
		w.Equal([]store.ProjectedObject{{Key: w.connector.Key(), Ref: w.connector.Ref}}, w.derivedFrom(derivationOne))
		w.requireNone(w.s.DerivedFrom(w.ctx, derivationOne, w.connector.Key(), 10))

		w.derived("anew", derivationTwo)
		secrets := w.acceptedSecrets()
		w.Len(secrets, 2)
		w.Nil(secrets["anew"])
		w.Equal(*w.keyStatus(derivationOne).EndsAt, *secrets["old"])
		w.NoError(w.s.RetireKey(w.ctx, derivationOne))
		w.NotNil(w.keyStatus(derivationOne).RetiredAt)
		w.reportKeys("manager", sealingOne, derivationTwo)

		version = w.version()
		w.admitKeys(map[string]time.Duration{derivationOne: 0}, sealingOne, derivationTwo)
		w.Greater(w.version(), version)
		secrets = w.acceptedSecrets()
		w.Len(secrets, 1, "the period was shortened")
		w.Contains(secrets, "anew")
	}},
	{"a secret of a key revoked at once expires at once", func(w *world) {
		w.setUpKeys()
		w.derived("old", derivationOne)
		w.admitKeys(map[string]time.Duration{derivationOne: 0}, derivationOne, sealingOne)
		w.Empty(w.acceptedSecrets())
	}},
	{"a lost key may be missing once it is revoked", func(w *world) {
		w.setUpKeys()
		w.admitKeys(map[string]time.Duration{derivationOne: 0}, sealingOne, derivationTwo)
		w.reportKeys("manager", sealingOne, derivationTwo)
		w.promote(derivationTwo)
		w.Equal(derivationTwo, w.derivationKey(w.connector.ID, 1))
	}},
	{"fields sealed by an old key are resealed, unless they changed", func(w *world) {
		w.setUpKeys()
		w.derived("one", derivationOne)
		w.Equal(sealingOne, w.readConnector(w.connector.Key()).SealedKey)
		w.requireNone(w.s.SealedBefore(w.ctx, sealingOne, store.Key{}, 10))
		fields, err := w.s.SealedBefore(w.ctx, sealingTwo, store.Key{}, 10)
		w.NoError(err)
		w.Equal([]store.SealedField{{Connector: w.connector.Key(), Sealed: w.connector.Sealed}}, fields)
		w.requireNone(w.s.SealedBefore(w.ctx, sealingTwo, w.connector.Key(), 10))

		changed := fields[0]
		changed.Sealed = []byte("of before")
		w.NoError(w.s.Reseal(w.ctx, changed, []byte("anew"), sealingTwo))
		w.Equal(w.connector.Sealed, w.readConnector(w.connector.Key()).Sealed)
		w.NoError(w.s.Reseal(w.ctx, fields[0], []byte("anew"), sealingTwo))
		w.Equal("anew", string(w.readConnector(w.connector.Key()).Sealed))
		w.Equal(sealingTwo, w.readConnector(w.connector.Key()).SealedKey)
	}},
}

// derivedFrom returns the connectors whose secrets are derived from a key.
func (w *world) derivedFrom(key string) []store.ProjectedObject {
	w.t.Helper()
	from, err := w.s.DerivedFrom(w.ctx, key, store.Key{}, 10)
	w.NoError(err)
	return from
}
