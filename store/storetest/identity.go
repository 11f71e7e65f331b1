// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// requireStale returns the error for an object that is older than its stored state.
func (w *world) requireStale(err error) store.StaleError {
	var stale *store.StaleError
	w.ErrorAs(err, &stale)
	return *stale
}

var identityPromises = []promise{
	{"objects of every kind claim an ID and free it", func(w *world) {
		for _, kind := range store.Kinds {
			key, held := w.key(uuid.New()), objectRef(kind, "of-every-kind")
			w.NoError(w.s.ClaimID(w.ctx, key, held), kind)
			got, err := w.s.Holder(w.ctx, key)
			w.NoError(err, kind)
			w.True(got.SameObject(held), kind)
			w.NoError(w.s.Remove(w.ctx, w.project.ID, held), kind)
			w.ErrorIs(errorOf(w.s.Holder(w.ctx, key)), store.ErrNotFound, kind)
		}
	}},
	{"the first object of the project that claims an ID gets it", func(w *world) {
		key, first, second := w.key(uuid.New()), objectRef(store.KindConnector, "first"), objectRef(store.KindConnector, "second")
		w.ErrorIs(errorOf(w.s.Holder(w.ctx, key)), store.ErrNotFound)
		w.NoError(w.s.ClaimID(w.ctx, key, first))
		holder, err := w.s.Holder(w.ctx, key)
		w.NoError(err)
		w.Equal(first, holder)
		var taken *store.IDTakenError
		w.ErrorAs(w.s.ClaimID(w.ctx, key, second), &taken)
		w.Equal(first, taken.Holder)
		w.NoError(w.s.ClaimID(w.ctx, store.Key{ProjectID: uuid.New(), ID: key.ID}, second), "another project's ID is another one")
		w.ErrorIs(errorOf(w.s.Connector(w.ctx, key)), store.ErrNotFound, "a claim does nothing else")
	}},
	{"a taken ID is rejected for every kind, and nothing is written", func(w *world) {
		before := w.allRows(w.project.ID)
		intruder := func(r store.ObjectRef) store.ObjectRef {
			r.Name = "intruder"
			return r
		}
		for _, err := range []error{
			w.s.PutProject(w.ctx, store.Project{Ref: intruder(w.project.Ref), ID: w.project.ID}),
			w.s.PutEnvironment(w.ctx, store.Environment{
				Ref: intruder(w.environment.Ref), ID: w.environment.ID, ProjectID: w.project.ID, ObjectCreatedAt: origin,
			}),
			w.s.PutConnector(w.ctx, store.Connector{
				Ref: intruder(w.connector.Ref), ID: w.connector.ID, ProjectID: w.project.ID, EnvironmentID: w.environment.ID,
			}),
			w.s.PutLink(w.ctx, store.Link{
				Ref: intruder(w.links[0].Ref), ID: w.links[0].ID, ProjectID: w.project.ID, ConnectorID: w.connector.ID,
			}),
			w.s.PutLink(w.ctx, store.Link{ // of another kind
				Ref: objectRef(store.KindConnectorLink, "orders"), ID: w.connector.ID, ProjectID: w.project.ID, ConnectorID: w.connector.ID,
			}),
			errorOf(w.s.BeginDeployment(w.ctx, store.DeploymentSpec{
				Ref: objectRef(store.KindDeployment, "orders"), ID: w.connector.ID, ProjectID: w.project.ID, EnvironmentID: w.environment.ID,
			})),
		} {
			var taken *store.IDTakenError
			w.ErrorAs(err, &taken)
		}
		w.Equal(before, w.allRows(w.project.ID))
	}},
	{"an existing claim costs no write", func(w *world) {
		key, r := w.key(uuid.New()), objectRef(store.KindConnector, "claimed")
		r.Generation = 2
		w.NoError(w.s.ClaimID(w.ctx, key, r))
		before := w.allRows(w.project.ID)
		for range 3 {
			w.NoError(w.s.ClaimID(w.ctx, key, r))
		}
		w.Equal(before, w.allRows(w.project.ID))
		r.Generation = 1
		w.Equal(store.StaleError{Stored: 2, Writes: 1}, w.requireStale(w.s.ClaimID(w.ctx, key, r)))
	}},
	{"a repeated beginning costs no write", func(w *world) {
		spec := w.newDeployment("one")
		spec.Ref.Generation = 2
		begin := func(r store.ObjectRef) (d store.Deployment) {
			again := spec
			again.Ref = r
			d = w.beginDeployment(again)
			return d
		}
		older := spec.Ref
		older.Generation = 1
		first := begin(spec.Ref)
		for range 3 {
			w.Equal(first, begin(spec.Ref))
		}
		w.Equal(store.StaleError{Stored: 2, Writes: 1}, w.requireStale(w.s.ClaimID(w.ctx, spec.Key(), older)))

		newer := spec.Ref
		newer.Generation = 3
		for range 3 {
			w.Equal(newer, begin(newer).Ref)
		}
		w.Equal(store.StaleError{Stored: 3, Writes: 2}, w.requireStale(w.s.ClaimID(w.ctx, spec.Key(), older)))
		other := newer
		other.ObjectUID = "another incarnation"
		for range 3 {
			w.Equal(other, begin(other).Ref)
		}
		older.ObjectUID = other.ObjectUID
		w.EqualValues(1, w.requireStale(w.s.ClaimID(w.ctx, spec.Key(), older)).Writes, "a row of its own")
		w.Equal(store.DeploymentPending, w.deployment(spec.ID).Status)
	}},
	{"the claims of a kind are listed by name", func(w *world) {
		second := w.newConnector("another")
		w.NoError(w.s.ClaimID(w.ctx, second.Key(), second.Ref))
		holders, err := w.s.Holders(w.ctx, w.project.ID, store.KindConnector)
		w.NoError(err)
		w.Equal([]store.ProjectedObject{
			{Key: second.Key(), Ref: second.Ref}, {Key: w.connector.Key(), Ref: w.connector.Ref},
		}, holders)
	}},
	{"a claim by another incarnation applies the missed deletion", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		again := w.environment.Ref
		again.ObjectUID = "second incarnation"
		w.NoError(w.s.ClaimID(w.ctx, w.environment.Key(), again))
		w.ErrorIs(errorOf(w.s.Environment(w.ctx, w.environment.Key())), store.ErrNotFound)
		w.Equal(store.RunCancelled, w.run(e.Runs[0].ID).Status)
	})},
	{"runs of an earlier incarnation never become another's", withAgent(func(w *world) {
		w.singles(1100) // more than one transaction cancels
		again := w.environment
		again.Ref.ObjectUID = "second incarnation"
		w.ErrorIs(w.s.PutEnvironment(w.ctx, again), store.ErrLeaving)
		w.ErrorIs(errorOf(w.s.Environment(w.ctx, again.Key())), store.ErrNotFound)
		w.NoError(errorOf(w.s.SweepLeases(w.ctx, 10_000)))
		w.NoError(w.s.PutEnvironment(w.ctx, again))
		w.environment = again
		w.deploy("two", "first")
		w.Empty(w.claim(10, lease))
		w.Zero(w.countRowsOf("open_runs"))
	})},
	{"a claim with another ID applies the deletion of the first", withAgents(func(w *world) {
		e := w.acceptEvent(w.event())
		again := w.environment
		again.ID, again.Ref.ObjectUID = uuid.New(), "second incarnation"
		w.NoError(w.s.ClaimID(w.ctx, again.Key(), again.Ref))
		w.Equal(store.RunCancelled, w.run(e.Runs[0].ID).Status)
		w.ErrorIs(errorOf(w.s.Holder(w.ctx, w.environment.Key())), store.ErrNotFound)
	})},
	{"an older object wins only if an uncached read confirms it", func(w *world) {
		newer := w.connector
		newer.Ref.Generation, newer.Config = 5, timeoutSettings(60)
		w.NoError(w.s.PutConnector(w.ctx, newer))
		old := w.connector
		old.Ref.Generation, old.Config = 3, timeoutSettings(90)
		told := w.requireStale(w.s.PutConnector(w.ctx, old))
		w.EqualValues(5, told.Stored)
		old.Ref.Restored = told.Writes + 1
		w.Equal(told, w.requireStale(w.s.PutConnector(w.ctx, old)), "the claim has another one")
		old.Ref.Restored = told.Writes
		w.NoError(w.s.PutConnector(w.ctx, old))
		got := w.readConnector(old.Key())
		w.Equal(timeoutSettings(90), got.Config)
		w.EqualValues(3, got.Ref.Generation)
		w.Zero(got.Ref.Restored)
		w.NoError(w.s.PutConnector(w.ctx, old), "again: it has the stored state")
	}},
	{"a confirmed object loses to later writes", func(w *world) {
		newer := w.connector
		newer.Ref.Generation = 5
		w.NoError(w.s.PutConnector(w.ctx, newer))
		old := w.connector
		old.Ref.Generation = 3
		old.Ref.Restored = w.requireStale(w.s.PutConnector(w.ctx, old)).Writes
		w.NoError(w.s.PutConnector(w.ctx, newer), "with the same generation, but after the read")
		w.Greater(w.requireStale(w.s.PutConnector(w.ctx, old)).Writes, old.Ref.Restored)
	}},
	{"a confirmed claim covers the following write", func(w *world) {
		newer := w.environment
		newer.Ref.Generation = 5
		w.NoError(w.s.PutEnvironment(w.ctx, newer))
		old := w.environment
		old.Ref.Generation, old.DisplayName = 3, "unchanged"
		old.Ref.Restored = w.requireStale(w.s.ClaimID(w.ctx, old.Key(), old.Ref)).Writes
		w.NoError(w.s.ClaimID(w.ctx, old.Key(), old.Ref))
		w.NoError(w.s.PutEnvironment(w.ctx, old))
		w.Equal("unchanged", w.readEnvironment(old.Key()).DisplayName)
	}},
	{"a mirror takes over the ID of its connector and is listed", func(w *world) {
		connector := w.newConnector("from-code")
		connector.DefinedInCode, connector.Ref.ObjectUID, connector.Ref.Generation = true, "", 0
		w.activateWith(store.Activation{
			Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{connector},
		})
		route := w.readRoute(connector.Key())
		listed := func() bool {
			objects := w.listProjected()
			for _, o := range objects {
				if o.Key == connector.Key() {
					return true
				}
			}
			return false
		}
		w.False(listed())
		connector.Ref.ObjectUID, connector.Ref.Generation = "mirror", 1
		w.NoError(w.s.ClaimID(w.ctx, connector.Key(), connector.Ref))
		w.True(listed())
		w.Equal(route.Connector.Version, w.readRoute(connector.Key()).Connector.Version, "nothing was deleted")
	}},
}

var duplicatePromises = []promise{
	{"of two connectors with one name the first counts", func(w *world) {
		late := w.newConnector("late")
		late.Name = w.connector.Name
		w.duplicate(w.s.PutConnector(w.ctx, late), w.connector.Ref)
		holder, err := w.s.Holder(w.ctx, late.Key())
		w.NoError(err, "the claim stays")
		w.Equal(late.Ref, holder)
		w.ErrorIs(errorOf(w.s.Connector(w.ctx, late.Key())), store.ErrNotFound)

		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.connector.Ref))
		w.NoError(w.s.PutConnector(w.ctx, late))
		w.NoError(errorOf(w.s.Route(w.ctx, late.Key())))
		w.duplicate(w.s.PutConnector(w.ctx, w.connector), late.Ref)
	}},
	{"a name is free in other environments, a retired one for code only", func(w *world) {
		elsewhere, environment := w.newConnector("elsewhere"), w.newEnvironment("staging", origin.Add(time.Hour))
		w.NoError(w.s.PutEnvironment(w.ctx, environment))
		elsewhere.Name, elsewhere.EnvironmentID = w.connector.Name, environment.ID
		w.NoError(w.s.PutConnector(w.ctx, elsewhere))
		code := w.codeConnector("code")
		w.NoError(w.s.PutConnector(w.ctx, code))
		retired := code
		retired.Retired = true
		w.NoError(w.s.PutConnector(w.ctx, retired))
		own, next := w.newConnector("own"), w.codeConnector("next")
		own.Name, next.Name = code.Name, code.Name
		w.duplicate(w.s.PutConnector(w.ctx, own), code.Ref)
		w.NoError(w.s.PutConnector(w.ctx, next))
		w.duplicate(w.s.PutConnector(w.ctx, code), next.Ref)
	}},
	{"names are compared without case, and the older stays", func(w *world) {
		young := w.newConnector("young")
		w.NoError(w.s.PutConnector(w.ctx, young))
		for _, name := range []string{"BESTÄNDE", "Bestände"} {
			w.connector.Name = name
			w.NoError(w.s.PutConnector(w.ctx, w.connector), "its own name")
		}
		other := w.newConnector("other")
		other.Name = "bestÄnde"
		w.duplicate(w.s.PutConnector(w.ctx, other), w.connector.Ref)
		young.Name = "bestände"
		_, err := w.db.ExecContext(w.ctx, `UPDATE connectors SET name = 'bestände' WHERE project_id = $1 AND id = $2`, w.project.ID.String(), young.ID.String())
		w.NoError(err, "as before case-insensitive names")
		w.NoError(w.s.PutConnector(w.ctx, w.connector))
		w.duplicate(w.s.PutConnector(w.ctx, young), w.connector.Ref)
		w.NoError(errorOf(w.s.Route(w.ctx, w.connector.Key())))
	}},
	{"a connector that takes another's name keeps its secrets", func(w *world) {
		other := w.newConnector("other")
		w.NoError(w.s.PutConnector(w.ctx, other))
		other.SecretVersion, other.SecretDigest = 2, []byte("secret two")
		w.NoError(w.s.PutConnector(w.ctx, other))
		before := w.readConnector(other.Key())
		renamed := other
		renamed.Name = w.connector.Name
		for range 2 {
			w.duplicate(w.s.PutConnector(w.ctx, renamed), w.connector.Ref)
		}
		w.ErrorIs(errorOf(w.s.Route(w.ctx, other.Key())), store.ErrNotFound)
		third := w.newConnector("third")
		third.Name = "other"
		w.NoError(w.s.PutConnector(w.ctx, third), "the name is free")
		other.Name = "a name of its own"
		w.NoError(w.s.PutConnector(w.ctx, other))
		after := w.readConnector(other.Key())
		w.Equal(before.Secrets, after.Secrets)
		w.Greater(after.Version, before.Version)
	}},
	{"of two links of one agent the first counts", func(w *world) {
		late := w.newLink("late", w.connector.ID, "first", origin.Add(-time.Hour))
		w.duplicate(w.s.PutLink(w.ctx, late), w.links[0].Ref)
		w.NoError(errorOf(w.s.Holder(w.ctx, late.Key())), "the claim stays")
		w.Len(w.readRoute(w.connector.Key()).Links, 2)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.links[0].Ref))
		w.NoError(w.s.PutLink(w.ctx, late))
		w.duplicate(w.s.PutLink(w.ctx, w.links[0]), late.Ref)
	}},
	{"the number of links per connector is limited", func(w *world) {
		for i := len(w.links); i < store.MaxLinks; i++ {
			w.NoError(w.s.PutLink(w.ctx, w.newLink(fmt.Sprintf("l%d", i), w.connector.ID, fmt.Sprintf("agent-%d", i), origin)))
		}
		late := w.newLink("late", w.connector.ID, "late", origin)
		var many *store.TooManyLinksError
		w.ErrorAs(w.s.PutLink(w.ctx, late), &many)
		w.NoError(w.s.PutLink(w.ctx, w.links[0]), "one of the existing ones")
		w.Len(w.readRoute(w.connector.Key()).Links, store.MaxLinks)
		w.NoError(w.s.Remove(w.ctx, w.project.ID, w.links[0].Ref))
		w.NoError(w.s.PutLink(w.ctx, late))
	}},
	{"a link that moves to a taken place leaves its own", func(w *world) {
		version := w.version()
		moved := w.links[1]
		moved.AgentName = "first"
		w.duplicate(w.s.PutLink(w.ctx, moved), w.links[0].Ref)
		route := w.readRoute(w.connector.Key())
		w.Len(route.Links, 1)
		w.Greater(route.Connector.Version, version)
	}},
	{"an activation with a taken name changes nothing", func(w *world) {
		spec, connector := w.build("one", "first"), w.newConnector("from-code")
		connector.Name, connector.DefinedInCode, connector.Ref.ObjectUID = w.connector.Name, true, ""
		before := w.allRows(w.project.ID)
		_, err := w.s.Activate(w.ctx, store.Activation{Deployment: spec.Key(), Connectors: []store.Connector{connector}})
		w.duplicate(err, w.connector.Ref)
		var refused *store.ConnectorRefusedError
		w.ErrorAs(err, &refused)
		w.Equal(connector.ID, refused.Connector)
		connector.Name = "from-code"
		link := w.newLink("from-code", w.connector.ID, "first", origin)
		link.Ref.ObjectUID = ""
		_, err = w.s.Activate(w.ctx, store.Activation{
			Deployment: spec.Key(), Connectors: []store.Connector{connector}, Links: []store.Link{link},
		})
		w.duplicate(err, w.links[0].Ref)
		w.ErrorAs(err, &refused)
		w.Equal(w.connector.ID, refused.Connector, "the ID of the link")
		connector.Ref.Name = "another"
		connector.ID = w.connector.ID
		_, err = w.s.Activate(w.ctx, store.Activation{Deployment: spec.Key(), Connectors: []store.Connector{connector}})
		w.ErrorAs(err, new(*store.IDTakenError))
		w.ErrorAs(err, &refused)
		w.Equal(connector.ID, refused.Connector)
		w.Equal(before, w.allRows(w.project.ID))
	}},
	{"names move between connectors in code in one activation", func(w *world) {
		one, two := w.newConnector("one"), w.newConnector("two")
		for _, c := range []*store.Connector{&one, &two} {
			c.DefinedInCode, c.Ref.ObjectUID = true, ""
		}
		activate := func(deployment string, connectors ...store.Connector) {
			w.activateWith(store.Activation{
				Deployment: w.build(deployment, "first").Key(), Connectors: connectors,
			})
		}
		activate("first", one, two)
		one.Name, two.Name = two.Name, one.Name
		activate("second", one, two)
		w.Equal("two", w.readConnector(one.Key()).Name)
		three := w.newConnector("three")
		three.DefinedInCode, three.Ref.ObjectUID, three.Name = true, "", "two"
		activate("third", three, two)
		w.NoError(errorOf(w.s.Connector(w.ctx, three.Key())), "also for a retired one")
	}},
	{"of many concurrent connectors with one name one counts", func(w *world) {
		connectors := make([]store.Connector, writers)
		for i := range connectors {
			connectors[i] = w.newConnector(uuid.NewString())
			connectors[i].Name = "wanted"
		}
		in := make([]bool, writers)
		w.NoError(together(func(i int) error {
			err := w.s.PutConnector(w.ctx, connectors[i])
			var duplicate *store.DuplicateError
			if errors.As(err, &duplicate) {
				return nil
			}
			in[i] = err == nil
			return err
		}))
		count := 0
		for i := range in {
			if in[i] {
				count++
			}
		}
		w.Equal(1, count)
	}},
	{"a secret's version never decreases", func(w *world) {
		rotated := w.connector
		rotated.SecretVersion, rotated.SecretDigest, rotated.Ref.Generation = 3, []byte("secret three"), 3
		w.NoError(w.s.PutConnector(w.ctx, rotated))
		before := w.readConnector(rotated.Key())
		w.EqualValues(3, before.SecretVersion)
		back := rotated
		back.SecretVersion, back.SecretDigest, back.Ref.Generation = 2, []byte("secret two"), 4
		back.Config, back.SecretGracePeriod = timeoutSettings(77), 0
		var behind *store.SecretVersionError
		for range 2 {
			w.ErrorAs(w.s.PutConnector(w.ctx, back), &behind)
			w.Equal(store.SecretVersionError{Asked: 2, Stored: 3}, *behind)
		}
		got := w.readConnector(rotated.Key())
		w.Equal(timeoutSettings(77), got.Config, "the rest is written")
		w.Equal(before.Secrets, got.Secrets)
		w.EqualValues(3, got.SecretVersion)
		_, err := w.s.Activate(w.ctx, store.Activation{Deployment: w.build("one", "first").Key(), Connectors: []store.Connector{back}})
		w.NoError(err, "nor does it reject an activation")
		w.Equal(before.Secrets, w.readConnector(rotated.Key()).Secrets)
	}},
}

// duplicate expects a *store.DuplicateError.
func (w *world) duplicate(err error, holder store.ObjectRef) {
	var duplicate *store.DuplicateError
	w.ErrorAs(err, &duplicate)
	w.Equal(holder, duplicate.Holder)
}
