// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Any caller that knows a project's ID can send a push webhook. A forged call triggers one poll of the project's own
// repository, regardless of the number and content of the calls.
func TestPush_ForgedCall(t *testing.T) {
	p := start(t)
	victim, other := p.settle(), p.settle()
	victim.populate()
	other.populate()
	p.gatewayAlone() // no controller polls meanwhile
	before, others := victim.rows(), other.rows()
	require.Empty(t, before["looks"])
	forge := func(path, body string) answer {
		return other.send(http.MethodPost, "http://"+p.gateway.PublicAddr()+path, body, http.Header{
			"X-Github-Event": {"push"}, "X-Hub-Signature-256": {"sha256=00"}, "Authorization": {"Bearer " + other.key.String()},
		})
	}
	for _, body := range []string{
		``, `{"ref":"refs/heads/main"}`, `{"project_id":"` + other.project.String() + `","repository":{"clone_url":"https://attacker.example/a.git"}}`, `no JSON`,
	} {
		got := forge("/git/"+victim.project.String()+"?project_id="+other.project.String(), body)
		require.Equal(t, http.StatusAccepted, got.status, got.body)
		victim.requireNothingOf(got, "a forged push")
	}
	for _, path := range []string{"/git/" + uuid.NewString(), "/git/" + victim.project.String() + "/" + other.project.String(), "/git/project", "/git/"} {
		require.Equal(t, http.StatusNotFound, forge(path, ``).status, path)
	}
	asked, err := p.store.ListPollRequests(t.Context(), uuid.Nil, 10)
	require.NoError(t, err)
	require.Len(t, asked, 1)
	require.Equal(t, victim.project, asked[0].ProjectID)
	require.Equal(t, victim.namespace, asked[0].Namespace)
	require.Equal(t, others, other.rows())
	after := victim.rows()
	require.Len(t, after["looks"], 1)
	after["looks"] = nil
	require.Equal(t, before, after)

	require.NoError(t, p.store.DeletePollRequest(t.Context(), victim.project))
	asked, err = p.store.ListPollRequests(t.Context(), uuid.Nil, 10)
	require.NoError(t, err)
	require.Empty(t, asked, "all of them together cost one")
}
