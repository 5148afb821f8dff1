// A client of Trinity's feedback and commit with the data classes of AgentScope Java's training extension, whose Jackson
// throws at each field of an answer that its class does not have.
//
// java -cp JACKSON StrictClient.java URL FEEDBACK...: posts each FEEDBACK (JSON, read into the request class and written
// from it, as a Java program would send it), then a commit; prints each answer as a line of JSON.

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;

public class StrictClient {
    public static class FeedbackRequest {
        @JsonProperty("msg_ids")
        public List<String> msgIds;

        @JsonProperty("reward")
        public Double reward;

        @JsonProperty("task_id")
        public String taskId;

        @JsonProperty("run_id")
        public String runId;
    }

    public static class CommitRequest {
        @JsonProperty("task_id")
        public String taskId;

        @JsonProperty("run_id")
        public String runId;

        @JsonProperty("time_threshold")
        public Long timeThreshold;
    }

    public static class StatusResponse {
        private String status;
        private String message;

        public String getStatus() {
            return status;
        }

        public void setStatus(String status) {
            this.status = status;
        }

        public String getMessage() {
            return message;
        }

        public void setMessage(String message) {
            this.message = message;
        }
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    public static void main(String[] arguments) throws Exception {
        for (int i = 1; i < arguments.length; i++) {
            post(arguments[0] + "/feedback", JSON.readValue(arguments[i], FeedbackRequest.class));
        }
        post(arguments[0] + "/commit", new CommitRequest());
    }

    private static void post(String url, Object body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                .header("content-type", "application/json; charset=utf-8")
                .POST(HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(body)))
                .build();
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() / 100 != 2) {
            throw new RuntimeException(url + ": " + answer.statusCode() + " " + answer.body());
        }
        System.out.println(JSON.writeValueAsString(JSON.readValue(answer.body(), StatusResponse.class)));
    }
}
