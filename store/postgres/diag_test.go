package postgres_test
import ("testing";"time";"fmt";"context";"strings"
"github.com/jackc/pgx/v5"
"github.com/agentplatform/agentplatform/internal/testenv"
"github.com/agentplatform/agentplatform/store"
"github.com/agentplatform/agentplatform/store/postgres"
"github.com/agentplatform/agentplatform/store/storetest/storebench")
func TestDiag(t *testing.T){
 dsn:=testenv.Postgres(t)
 s,_:=postgres.Open(t.Context(),postgres.Options{DSN:dsn}); defer s.Close(); s.Migrate(t.Context())
 c:=storebench.NewScene(t,s,1); c.History(t)
 var d [4]time.Duration
 ctx:=context.Background()
 for range 100 {
  e:=c.Event(t); a:=time.Now(); s.Accept(ctx,[]store.Event{e}); d[0]+=time.Since(a); a=time.Now()
  cl,_:=s.Claim(ctx,store.Claim{EnvironmentID:c.Environment,RunnerID:"r",Limit:1,Lease:store.LeaseDuration}); d[1]+=time.Since(a); a=time.Now()
  s.Complete(ctx,store.Completion{Lease:store.Lease{RunID:cl[0].Run.ID,Token:cl[0].Token},Status:store.RunCompleted}); d[2]+=time.Since(a);a=time.Now()
  s.Outcome(ctx,e.ConnectorRunID); d[3]+=time.Since(a)
 }
 fmt.Println("accept claim complete outcome", d[0]/100,d[1]/100,d[2]/100,d[3]/100)
 conn,_:=pgx.Connect(ctx,dsn); conn.Exec(ctx,"set plan_cache_mode=force_generic_plan")
 for _,q:=range []string{postgres.ClaimSQL} {
  conn.Exec(ctx,"prepare x as "+q)
  rows,err:=conn.Query(ctx,fmt.Sprintf("explain (analyze,buffers) execute x('%s','r','[]',5000000,1,30000000)",c.Environment)); if err!=nil{t.Fatal(err)}
  for rows.Next(){var l string; rows.Scan(&l); fmt.Println(l)}
  fmt.Println(rows.Err(), strings.Repeat("-",20))
 }
}
