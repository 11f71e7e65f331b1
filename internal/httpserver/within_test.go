// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// reluctant takes a quarter of a minute per piece.
type reluctant struct{ *httptest.ResponseRecorder }

func (r reluctant) Write(p []byte) (int, error) {
	time.Sleep(time.Minute / 4) // time of the synctest bubble
	return r.ResponseRecorder.Write(p)
}

// A slow client does not extend the limit. A response that is read in time is complete.
func TestAnswerWithin_LimitsTotalTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := reluctant{httptest.NewRecorder()}
		n, err := AnswerWithin(slow, time.Minute).Write(make([]byte, 100*answerPiece))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 5*answerPiece, n)
		require.Equal(t, n, slow.Body.Len())

		quick := httptest.NewRecorder()
		n, err = AnswerWithin(quick, time.Minute).Write(make([]byte, 3*answerPiece+1))
		require.NoError(t, err)
		require.Equal(t, 3*answerPiece+1, n)
		require.NoError(t, http.NewResponseController(AnswerWithin(quick, time.Minute)).Flush())
	})
}
