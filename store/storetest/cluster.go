// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	here  = "the uid of one cluster"
	there = "the uid of another"
)

// ageLease moves the renewal of the lease back.
func (w *world) ageLease(by time.Duration) {
	w.execStatement(`UPDATE cluster_lease SET renewed_at = renewed_at - $1`, by.Microseconds())
}

// adoptedStore returns a store that another cluster has adopted.
func (w *world) adoptedStore() store.Control {
	w.NoError(w.s.HoldCluster(w.ctx, here, uuid.New()))
	w.ageLease(store.AdoptionAge)
	w.NoError(errorOf(w.s.AdoptCluster(w.ctx, there)))
	return w.s.ForCluster(there)
}

func (w *world) foreign(err error, lease string) {
	var foreign *store.ForeignClusterError
	w.ErrorAs(err, &foreign)
	w.Equal(lease, foreign.Lease.ClusterUID)
}

// controlReads are the read-only methods of a manager.
var controlReads = []string{
	"Cluster", "ListProjected", "Holder", "Holders", "Environment", "DefaultEnvironment", "Connector", "HasAgent", "SendsByMiddleware", "AgentNames", "Agents", "Agent", "HasRuns",
	"AgentConfig", "Deployment", "ListDeployments", "ConnectorFiles", "Runners", "Token", "ListAudit", "Keys", "DerivationKeys", "DerivedFrom", "SealedBefore", "DestinationsOf", "TroubledDestinations",
	"ListPollRequests", "HasUpload", "CodeConnectors", "ConnectorsOf", "EnvironmentName",
	"Demand", "Rates", "LatestRate", "ProjectTelemetry", "Drift", "DriftedEnvironments",
}

// controlWrites are the other methods, each with a call that would have an effect.
var controlWrites = map[string]func(v *victim, c store.Control) error{
	"TakeRejectionNews": func(v *victim, c store.Control) error {
		_, err := c.TakeRejectionNews(v.ctx, 10)
		return err
	},
	"PutRates": func(v *victim, c store.Control) error {
		return c.PutRates(v.ctx, []store.Rate{{Currency: store.USD, Day: 20_000, Micros: 1}})
	},
	"DeletePollRequest": func(v *victim, c store.Control) error { return c.DeletePollRequest(v.ctx, v.project.ID) },
	"ClaimID": func(v *victim, c store.Control) error {
		return c.ClaimID(v.ctx, v.key(uuid.New()), objectRef(store.KindConnector, "new"))
	},
	"RecordAudit": func(v *victim, c store.Control) error {
		_, err := c.RecordAudit(v.ctx, store.AuditEntry{
			ProjectID: v.project.ID, Operation: "o", Actor: store.AuditActor{Kind: store.AuditWriter, Name: "kubectl"},
		})
		return err
	},
	"RecordAuditOutcome": func(v *victim, c store.Control) error {
		return c.RecordAuditOutcome(v.ctx, v.project.ID, v.act, store.AuditOutcome{Status: 200})
	},
	"ReportKeys": func(v *victim, c store.Control) error {
		return errorOf(c.ReportKeys(v.ctx, "another", fingerprints(derivationOne, sealingOne)))
	},
	"ForgetProcess": func(v *victim, c store.Control) error { return c.ForgetProcess(v.ctx, "manager") },
	"AdmitKeys": func(v *victim, c store.Control) error {
		return c.AdmitKeys(v.ctx, []store.PlatformKey{platformKey(derivationOne), platformKey(sealingOne), platformKey(derivationTwo)}, nil)
	},
	"PromoteKeys":   func(v *victim, c store.Control) error { return errorOf(c.PromoteKeys(v.ctx, store.KeyHolderAge)) },
	"DerivationKey": func(v *victim, c store.Control) error { return errorOf(c.DerivationKey(v.ctx, v.key(uuid.New()), 1)) },
	"Reseal": func(v *victim, c store.Control) error {
		return c.Reseal(v.ctx, store.SealedField{Connector: v.connector.Key()}, []byte("anew"), sealingOne)
	},
	"RetireKey":  func(v *victim, c store.Control) error { return c.RetireKey(v.ctx, derivationTwo) },
	"PutProject": func(v *victim, c store.Control) error { return c.PutProject(v.ctx, v.project) },
	"PutEnvironment": func(v *victim, c store.Control) error {
		return c.PutEnvironment(v.ctx, v.newEnvironment("new", origin))
	},
	"PutConnector": func(v *victim, c store.Control) error { return c.PutConnector(v.ctx, v.newConnector("new")) },
	"DisableConnector": func(v *victim, c store.Control) error {
		return c.DisableConnector(v.ctx, v.connector.Key(), v.connector.Ref)
	},
	"PutLink": func(v *victim, c store.Control) error {
		return c.PutLink(v.ctx, v.newLink("new", v.connector.ID, "new", origin))
	},
	"Remove": func(v *victim, c store.Control) error { return c.Remove(v.ctx, v.project.ID, v.environment.Ref) },
	"BeginDeployment": func(v *victim, c store.Control) error {
		return errorOf(c.BeginDeployment(v.ctx, v.newDeployment("new")))
	},
	"StartBuild": func(v *victim, c store.Control) error { return c.StartBuild(v.ctx, v.building.Key(), "") },
	"RecordConnectors": func(v *victim, c store.Control) error {
		return c.RecordConnectors(v.ctx, v.building.Key(), json.RawMessage(`[]`))
	},
	"EndDeployment": func(v *victim, c store.Control) error {
		return c.EndDeployment(v.ctx, v.building.Key(), store.DeploymentCancelled, "", "")
	},
	"RequestPrefetch": func(v *victim, c store.Control) error { return c.RequestPrefetch(v.ctx, v.environment.Key(), v.digest) },
	"Activate": func(v *victim, c store.Control) error {
		return errorOf(c.Activate(v.ctx, store.Activation{Deployment: v.building.Key()}))
	},
	"PutToken": func(v *victim, c store.Control) error {
		token := v.token
		token.SHA256 = []byte("new")
		return c.PutToken(v.ctx, token)
	},
}

var clusterPromises = []promise{
	{"the first cluster gets the store, others get an error", func(w *world) {
		platform := uuid.New()
		w.ErrorIs(errorOf(w.s.Cluster(w.ctx)), store.ErrNotFound)
		w.ErrorIs(w.s.FinishAdoption(w.ctx, here), store.ErrConflict)
		w.ErrorIs(errorOf(w.s.AdoptCluster(w.ctx, here)), store.ErrNotFound)
		w.foreign(w.s.ForCluster(here).PutProject(w.ctx, w.project), "")

		w.NoError(w.s.HoldCluster(w.ctx, here, platform))
		w.ageLease(time.Hour)
		l, err := w.s.Cluster(w.ctx)
		w.NoError(err)
		w.GreaterOrEqual(l.Age, time.Hour)
		w.Equal(store.ClusterLease{ClusterUID: here, PlatformID: platform, Age: l.Age}, l)
		w.foreign(w.s.HoldCluster(w.ctx, there, platform), here)
		var other *store.ForeignPlatformError
		w.ErrorAs(w.s.HoldCluster(w.ctx, here, uuid.New()), &other)
		w.Equal(platform, other.Stored)
		l, err = w.s.Cluster(w.ctx)
		w.NoError(err)
		w.GreaterOrEqual(l.Age, time.Hour, "a rejected manager renews nothing")
		w.NoError(w.s.HoldCluster(w.ctx, here, platform))
		l, err = w.s.Cluster(w.ctx)
		w.NoError(err)
		w.Less(l.Age, time.Hour)
	}},
	{"of two concurrent clusters one gets the store", func(w *world) {
		platform, holders := uuid.New(), make([]bool, writers)
		w.NoError(together(func(i int) error {
			uid := []string{here, there}[i%2]
			err := w.s.HoldCluster(w.ctx, uid, platform)
			var foreign *store.ForeignClusterError
			if errors.As(err, &foreign) {
				return nil
			}
			holders[i] = true
			return err
		}))
		for i, holds := range holders {
			w.Equal(holders[i%2], holds)
		}
		w.NotEqual(holders[0], holders[1])
	}},
	{"every write of a manager asserts its cluster's lease", func(w *world) {
		w.ElementsMatch(methodsOf(reflect.TypeFor[store.Control]()), append(slices.Collect(maps.Keys(controlWrites)), controlReads...),
			"add a new method here")
		v := w.newVictim()
		w.NoError(w.s.HoldCluster(w.ctx, here, uuid.New()))
		before := w.allRows(w.project.ID)
		for method, write := range controlWrites {
			w.foreign(write(v, w.s.ForCluster(there)), here)
			w.Equal(before, w.allRows(w.project.ID), method)
		}
		for method, write := range controlWrites {
			for _, uid := range []string{here, ""} {
				var foreign *store.ForeignClusterError
				w.False(errors.As(write(v, w.s.ForCluster(uid)), &foreign), method)
			}
		}
	}},
	{"a manager of another cluster can read, and the data plane continues", func(w *world) {
		w.adoptedStore()
		got, err := w.s.ForCluster(here).Environment(w.ctx, w.environment.Key())
		w.NoError(err)
		w.Equal(w.environment.ID, got.ID)
		w.deploy("one", "first", "second")
		_, c := w.running(lease)
		w.NoError(w.complete(completed(c)))
	}},
	{"a store is not adopted while its lease is renewed", func(w *world) {
		w.NoError(w.s.HoldCluster(w.ctx, here, uuid.New()))
		before := w.allRows(w.project.ID)
		_, err := w.s.AdoptCluster(w.ctx, there)
		var used *store.LeaseInUseError
		w.ErrorAs(err, &used)
		w.Equal(here, used.Lease.ClusterUID)
		n, err := w.s.AdoptCluster(w.ctx, here)
		w.NoError(err, "the claim is its own")
		w.Zero(n)
		w.Equal(before, w.allRows(w.project.ID))
		w.ErrorIs(w.s.FinishAdoption(w.ctx, there), store.ErrConflict)
	}},
	{"an adoption hands over all claims and the lease", func(w *world) {
		platform := uuid.New()
		w.NoError(w.s.HoldCluster(w.ctx, here, platform))
		w.ageLease(store.AdoptionAge)
		n, err := w.s.AdoptCluster(w.ctx, there)
		w.NoError(err)
		w.Equal(5, n)
		l, err := w.s.Cluster(w.ctx)
		w.NoError(err)
		w.Equal(store.ClusterLease{ClusterUID: there, PlatformID: platform, Age: l.Age, Adopting: true}, l)
		objects := w.listProjected()
		w.Len(objects, 5)
		for _, o := range objects {
			w.Empty(o.Ref.ObjectUID)
			w.Zero(o.Ref.Generation)
		}
		w.foreign(w.s.HoldCluster(w.ctx, here, platform), there)
		w.NoError(w.s.HoldCluster(w.ctx, there, platform))
		w.ErrorIs(w.s.FinishAdoption(w.ctx, here), store.ErrConflict)
		w.NoError(w.s.FinishAdoption(w.ctx, there))
		l, err = w.s.Cluster(w.ctx)
		w.NoError(err)
		w.False(l.Adopting)
	}},
	{"an object takes over its row without the effects of a deletion", func(w *world) {
		spec := w.deploy("one", "first", "second")
		e := w.acceptEvent(w.event())
		version := w.version()
		control := w.adoptedStore()
		environment, connector, link := w.environment, w.connector, w.links[0]
		environment.Ref.ObjectUID, connector.Ref.ObjectUID, link.Ref.ObjectUID = "there", "there", "there"
		spec.Ref.ObjectUID = "there"
		w.NoError(control.ClaimID(w.ctx, environment.Key(), environment.Ref))
		w.NoError(control.PutEnvironment(w.ctx, environment))
		w.NoError(control.PutConnector(w.ctx, connector))
		w.NoError(control.PutLink(w.ctx, link))
		d, err := control.BeginDeployment(w.ctx, spec)
		w.NoError(err)
		w.Equal(store.DeploymentDeployed, d.Status)
		w.Equal("there", d.Ref.ObjectUID)
		w.Equal(version, w.version())
		w.Equal(store.RunQueued, w.run(e.Runs[0].ID).Status)
		got := w.readEnvironment(environment.Key())
		w.Equal(spec.ID, *got.LiveDeploymentID)
		w.Equal("there", got.Ref.ObjectUID)

		older := environment.Ref
		older.ObjectUID = "re-created"
		w.NoError(control.ClaimID(w.ctx, environment.Key(), older), "from then on it is like any other")
		w.Equal(store.RunCancelled, w.run(e.Runs[0].ID).Status)
	}},
	{"a claim without an object stays listed and can be removed", func(w *world) {
		control := w.adoptedStore()
		connector := w.connector
		connector.Ref.ObjectUID = "there"
		w.NoError(control.PutConnector(w.ctx, connector))
		w.NoError(w.s.FinishAdoption(w.ctx, there))
		objects := w.listProjected()
		w.Len(objects, 5)
		for _, o := range objects {
			if o.Ref.ObjectUID == "" {
				w.NoError(control.Remove(w.ctx, o.Key.ProjectID, o.Ref))
			}
		}
		objects = w.listProjected()
		w.Equal([]store.ProjectedObject{{Key: connector.Key(), Ref: connector.Ref}}, objects)
	}},
	{"connectors activated after an adoption are mirrored, not swept", func(w *world) {
		connector := w.newConnector("from-code")
		connector.DefinedInCode, connector.Ref.ObjectUID, connector.Ref.Generation = true, "", 0
		activate := func(name string) {
			w.activateWith(store.Activation{
				Deployment: w.build(name, "first").Key(), Connectors: []store.Connector{connector},
			})
		}
		activate("one")
		w.adoptedStore()
		objects := w.listProjected()
		before := len(objects)
		activate("two")
		objects = w.listProjected()
		w.Len(objects, before, "one connector less, one deployment more")
		w.False(slices.ContainsFunc(objects, func(o store.ProjectedObject) bool { return o.Key == connector.Key() }))
	}},
	{"a manager under constant writes can renew its lease", func(w *world) {
		platform, stop := uuid.New(), make(chan struct{})
		w.NoError(w.s.HoldCluster(w.ctx, here, platform))
		control := w.s.ForCluster(here)
		w.NoError(together(func(i int) error {
			if i == 0 {
				defer close(stop)
				return w.s.HoldCluster(w.ctx, here, platform)
			}
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if err := control.PutConnector(w.ctx, w.newConnector(uuid.NewString())); err != nil {
					return err
				}
			}
		}))
	}},
	{"no write of the old manager follows the adoption", func(w *world) {
		w.NoError(w.s.HoldCluster(w.ctx, here, uuid.New()))
		w.ageLease(store.AdoptionAge)
		control := w.s.ForCluster(here)
		w.NoError(together(func(i int) error {
			if i == 0 {
				return errorOf(w.s.AdoptCluster(w.ctx, there))
			}
			for range 20 {
				err := control.PutConnector(w.ctx, w.newConnector(uuid.NewString()))
				var foreign *store.ForeignClusterError
				if errors.As(err, &foreign) {
					return nil
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
		objects := w.listProjected()
		for _, o := range objects {
			w.Empty(o.Ref.ObjectUID, o.Ref)
		}
	}},
}
